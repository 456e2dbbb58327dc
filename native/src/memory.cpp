#include "memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "layout.h"

namespace headway {

namespace {

constexpr size_t kLargePage = 2u << 20;
constexpr size_t kStep = 4096;

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

std::shared_ptr<uint8_t> Recycler::take(size_t bytes) {
  // Sizes in few classes, so that steps of other shapes use the same buffers.
  size_t size = kStep;
  while (size < bytes) size += size / 2 / kStep * kStep + (size < 2 * kStep ? kStep : 0);
  Pages pages;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = free_.find(size);
    if (found != free_.end()) {
      pages = std::move(found->second);
      free_.erase(found);
    }
  }
  if (!pages.data()) pages = Pages(size);
  uint8_t* data = pages.data();
  auto held = std::make_shared<Pages>(std::move(pages));
  return {data, [self = shared_from_this(), held, size](uint8_t*) {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            self->free_.emplace(size, std::move(*held));
          }};
}

}  // namespace headway
