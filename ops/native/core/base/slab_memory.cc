#include "core/base/slab_memory.h"

#include <unistd.h>

#include <algorithm>

#include "core/base/round_up.h"

namespace hotrow {
namespace {

constexpr size_t kLeastSlab = size_t{64} << 10;
constexpr size_t kLargest = size_t{64} << 20;
constexpr size_t kAlignment = 64;

}  // namespace

size_t machine_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void SlabMemory::map(size_t bytes) {
  // A slab grows with the table, so that small tables stay small.
  const size_t size = std::max(std::clamp(taken_, kLeastSlab, kLargest), bytes);
  slabs_.emplace_back(size, "embedding rows");
  try {
    if (listener_ != nullptr) listener_->add_slab(slabs_.back().data(), slabs_.back().bytes());
  } catch (...) {
    slabs_.pop_back();
    throw;
  }
  next_ = slabs_.back().data();
  left_ = slabs_.back().bytes();
}

std::byte* SlabMemory::take(size_t bytes) {
  bytes = round_up(bytes, kAlignment);
  std::lock_guard lock(mutex_);
  if (left_ < bytes) map(bytes);
  std::byte* piece = next_;
  next_ += bytes;
  left_ -= bytes;
  taken_ += bytes;
  return piece;
}

size_t SlabMemory::bytes() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

void SlabMemory::remove_from_listener(size_t count) noexcept {
  if (listener_ == nullptr) return;
  for (size_t i = 0; i < count; ++i) listener_->remove_slab(slabs_[i].data());
}

void SlabMemory::set_listener(SlabListener* listener) {
  std::lock_guard lock(mutex_);
  remove_from_listener(slabs_.size());
  listener_ = listener;
  if (listener == nullptr) return;
  size_t added = 0;
  try {
    for (; added < slabs_.size(); ++added) {
      listener->add_slab(slabs_[added].data(), slabs_[added].bytes());
    }
  } catch (...) {
    remove_from_listener(added);
    listener_ = nullptr;
    throw;
  }
}

void SlabMemory::clear() {
  std::lock_guard lock(mutex_);
  remove_from_listener(slabs_.size());
  slabs_.clear();
  next_ = nullptr;
  left_ = taken_ = 0;
}

}  // namespace hotrow
