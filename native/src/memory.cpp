#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "layout.h"

namespace headway {

namespace {

constexpr size_t kLargePage = 2u << 20;
constexpr size_t kStep = 4096;
constexpr size_t kChunk = 32 * kLargePage;  // what of it is never written takes no memory
constexpr size_t kLine = 64;

}  // namespace

Pages::Pages(size_t bytes) : size_(round_up(bytes ? bytes : 1, bytes >= kLargePage ? kLargePage : kStep)) {
  void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (size_ >= kLargePage) madvise(p, size_, MADV_HUGEPAGE);  // a wish; any answer is fine
#endif
  data_ = static_cast<uint8_t*>(p);
}

Pages::~Pages() {
  if (data_) munmap(data_, size_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::shared_ptr<uint8_t> Arena::take(size_t bytes) {
  bytes = round_up(bytes, kLine);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!chunk_ || used_ + bytes > chunk_->size()) {
    chunk_ = std::make_shared<Pages>(std::max(bytes, kChunk));
    used_ = 0;
  }
  uint8_t* data = chunk_->data() + used_;
  used_ += bytes;
  return {chunk_, data};
}

struct Recycler::Return {
  std::shared_ptr<Recycler> owner;
  size_t size_class;
  Pages pages;

  void operator()(uint8_t*) {
    const std::lock_guard<std::mutex> lock(owner->mutex_);
    owner->free_[size_class].push_back(std::move(pages));
  }
};

std::shared_ptr<uint8_t> Recycler::take(size_t bytes) {
  // Sizes in few classes, so that steps of other shapes use the same buffers.
  size_t size = kStep, size_class = 0;
  for (; size < bytes; ++size_class) size += size / 2 / kStep * kStep + (size < 2 * kStep ? kStep : 0);
  Pages pages;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.size() <= size_class) free_.resize(size_class + 1);
    std::vector<Pages>& free = free_[size_class];
    if (!free.empty()) {
      pages = std::move(free.back());
      free.pop_back();
    }
  }
  if (!pages.data()) pages = Pages(size);
  uint8_t* data = pages.data();
  return {data, Return{shared_from_this(), size_class, std::move(pages)}};
}

}  // namespace headway
