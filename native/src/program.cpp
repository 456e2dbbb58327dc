#include "program.h"

#include <stdexcept>
#include <utility>

namespace headway {

void Program::check(Register x) const {
  if (x < 0 || x >= num_registers_) throw std::invalid_argument("no such register");
  if (result_ >= 0) throw std::invalid_argument("the recording has ended");
}

Program::Register Program::add(std::vector<Register> reads,
                               std::function<Tensor(Registers&, const Step&)> make) {
  for (const Register x : reads) check(x);
  const Register out = num_registers_++;
  instructions_.push_back({[out, make = std::move(make)](Registers& r, const Step& step) { r[out] = make(r, step); },
                           std::move(reads), {}});
  return out;
}

Program::Register Program::embed(const Table& table) {
  return add({}, [this, &table](Registers&, const Step& step) { return ops_.embed(table, step); });
}

Program::Register Program::norm(Register residual, std::optional<Register> delta, const Vector& weight, float eps,
                                bool is_final) {
  std::vector<Register> reads{residual};
  if (delta) reads.push_back(*delta);
  return add(std::move(reads), [this, residual, delta, &weight, eps, is_final](Registers& r, const Step&) {
    const Kind kind = is_final ? Kind::rows : ops_.activations();
    return ops_.norm(r[residual], delta ? &r[*delta] : nullptr, weight, eps, kind);
  });
}

Program::Register Program::linear(Register x, const Matrix& matrix) {
  return add({x}, [this, x, &matrix](Registers& r, const Step&) { return ops_.linear(r[x], matrix); });
}

Program::Register Program::norm_heads(Register qkv, const Vector& q, const Vector& k, float eps) {
  check(qkv);
  instructions_.push_back({[this, qkv, &q, &k, eps](Registers& r, const Step&) { ops_.norm_heads(r[qkv], q, k, eps); },
                           {qkv}, {}});
  return qkv;  // in place
}

Program::Register Program::rotate_and_store(Register qkv, int layer) {
  return add({qkv}, [this, qkv, layer](Registers& r, const Step& step) {
    return ops_.rotate_and_store(r[qkv], layer, step);
  });
}

Program::Register Program::attention(Register queries, int layer) {
  return add({queries}, [this, queries, layer](Registers& r, const Step& step) {
    return ops_.attention(r[queries], layer, step);
  });
}

Program::Register Program::silu_mul(Register gate_up) {
  return add({gate_up}, [this, gate_up](Registers& r, const Step&) { return ops_.silu_mul(r[gate_up]); });
}

void Program::finish(Register result) {
  check(result);
  std::vector<bool> is_read(num_registers_, false);
  is_read[result] = true;
  for (auto each = instructions_.rbegin(); each != instructions_.rend(); ++each) {
    for (const Register x : each->reads) {
      if (!is_read[x]) each->dead.push_back(x);
      is_read[x] = true;
    }
  }
  result_ = result;
}

Tensor Program::run(const Step& step) const {
  if (result_ < 0) throw std::invalid_argument("the recording has not ended");
  Registers registers(num_registers_);
  for (const Instruction& each : instructions_) {
    each.run(registers, step);
    for (const Register x : each.dead) registers[x] = Tensor();
  }
  return registers[result_];
}

}  // namespace headway
