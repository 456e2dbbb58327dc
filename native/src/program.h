// The operations of a forward pass, recorded once and run in one call for each step.
//
// A model is the same list of operations for every step. Called one by one from Python, each costs a
// fraction of a microsecond, which for one sequence is a tenth of the step.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops.h"

namespace headway {

// Takes the place of Ops while a model is recorded: a tensor is the number of its register.
class Program {
 public:
  using Register = int;

  explicit Program(Ops& ops) : ops_(ops) {}

  Register embed(const Table& table);
  Register norm(Register residual, std::optional<Register> delta, const Vector& weight, float eps, bool is_final);
  Register linear(Register x, const Matrix& matrix);
  Register norm_heads(Register qkv, const Vector& q, const Vector& k, float eps);
  Register rotate_and_store(Register qkv, int layer);
  Register attention(Register queries, int layer);
  Register silu_mul(Register gate_up);

  // End the recording; throws std::invalid_argument if nothing of that number was recorded.
  void finish(Register result);
  Tensor run(const Step& step) const;  // after finish
  Ops& ops() const { return ops_; }

 private:
  using Registers = std::vector<Tensor>;
  struct Instruction {
    std::function<void(Registers&, const Step&)> run;
    std::vector<Register> reads, dead;  // dead: read here for the last time, so that buffers are used again
  };

  Register add(std::vector<Register> reads, std::function<Tensor(Registers&, const Step&)> make);
  void check(Register x) const;

  Ops& ops_;
  std::vector<Instruction> instructions_;
  int num_registers_ = 0;
  Register result_ = -1;
};

}  // namespace headway
