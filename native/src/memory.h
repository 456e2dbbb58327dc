// Aligned memory that is taken once and used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace headway {

// Pages of the operating system, zeros at first, large ones where it likes; 64-byte aligned.
class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t bytes);  // throws std::bad_alloc
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Memory that is taken once and kept, such as weights: pieces lie one after the other in large pages,
// which alone most would be too small for. Zeros, 64-byte aligned; a chunk goes with its last piece.
class Arena {
 public:
  std::shared_ptr<uint8_t> take(size_t bytes);  // throws std::bad_alloc

 private:
  std::mutex mutex_;
  std::shared_ptr<Pages> chunk_;
  size_t used_ = 0;
};

// Buffers that come back when nobody holds them.
class Recycler : public std::enable_shared_from_this<Recycler> {
 public:
  std::shared_ptr<uint8_t> take(size_t bytes);

 private:
  struct Return;

  std::mutex mutex_;
  std::vector<std::vector<Pages>> free_;  // by class of size
};

}  // namespace headway
