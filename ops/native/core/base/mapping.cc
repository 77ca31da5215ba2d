#include "core/base/mapping.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "core/base/round_up.h"
#include "core/base/status.h"

namespace hotrow {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;

}  // namespace

Mapping::Mapping(size_t bytes, const char* what) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugePage;
  void* mapped = MAP_FAILED;
  if (bytes <= std::numeric_limits<size_t>::max() / 2) {
    bytes_ = round_up(bytes, huge ? kHugePage : kPage);
    mapped_bytes_ = huge ? bytes_ + kHugePage : bytes_;
    mapped =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (mapped == MAP_FAILED) {
    throw OutOfMemory(Code::kResourceExhausted,
                      "no memory for " + std::to_string(bytes) + " bytes of " + what);
  }
  mapped_ = data_ = static_cast<std::byte*>(mapped);
  if (!huge) return;
  const size_t start = reinterpret_cast<uintptr_t>(mapped);
  data_ += round_up(start, kHugePage) - start;
  // Some systems refuse it; then pages are small.
  (void)madvise(data_, bytes_, MADV_HUGEPAGE);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  Mapping(std::move(other)).swap(*this);
  return *this;
}

Mapping::~Mapping() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

void Mapping::swap(Mapping& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace hotrow
