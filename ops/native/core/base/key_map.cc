#include "core/base/key_map.h"

#include <algorithm>

namespace hotrow {
namespace {

// Appends keys that come in ascending order.
class Appender {
 public:
  Appender(AnonymousArray<uint64_t>& mixed, AnonymousArray<uint32_t>& values,
           unsigned log2_capacity)
      : mixed_(mixed), values_(values), shift_(64 - log2_capacity) {}
  // False: there is no room before the last slot.
  bool append(uint64_t mixed, uint32_t value) {
    const size_t slot = std::max<size_t>(mixed >> shift_, next_);
    if (slot + 1 >= values_.size()) return false;
    mixed_[slot] = mixed;
    values_[slot] = value;
    next_ = slot + 1;
    return true;
  }

 private:
  AnonymousArray<uint64_t>& mixed_;
  AnonymousArray<uint32_t>& values_;
  unsigned shift_;
  size_t next_ = 0;
};

}  // namespace

size_t KeyMap::lower_bound(uint64_t mixed) const {
  size_t slot = home(mixed);
  while (values_[slot] != 0 && mixed_[slot] < mixed) ++slot;
  return slot;
}

uint32_t* KeyMap::find(int64_t key) {
  if (size_ == 0) return nullptr;
  const uint64_t mixed = mixed_of(key);
  const size_t slot = lower_bound(mixed);
  return values_[slot] != 0 && mixed_[slot] == mixed ? &values_[slot] : nullptr;
}

void KeyMap::insert(int64_t key, uint32_t value) {
  if (log2_capacity_ == 0) rebuild(kLeastLog2, kSlack);
  if (4 * (size_ + 1) > size_t{3} << log2_capacity_) rebuild(log2_capacity_ + 1, kSlack);
  const uint64_t mixed = mixed_of(key);
  for (;;) {
    const size_t slot = lower_bound(mixed);
    size_t end = slot;
    while (values_[end] != 0) ++end;
    if (end + 1 == values_.size()) {
      // The run at the end of the array fills the slack; the number of homes need not grow.
      rebuild(log2_capacity_, 2 * (values_.size() - (size_t{1} << log2_capacity_)));
      continue;
    }
    for (size_t i = end; i > slot; --i) {
      mixed_[i] = mixed_[i - 1];
      values_[i] = values_[i - 1];
    }
    mixed_[slot] = mixed;
    values_[slot] = value;
    ++size_;
    return;
  }
}

void KeyMap::erase(uint32_t* value) {
  size_t slot = static_cast<size_t>(value - values_.data());
  for (; values_[slot + 1] != 0 && home(mixed_[slot + 1]) <= slot; ++slot) {
    mixed_[slot] = mixed_[slot + 1];
    values_[slot] = values_[slot + 1];
  }
  values_[slot] = 0;
  --size_;
  if (log2_capacity_ > kLeastLog2 && size_ < size_t{1} << (log2_capacity_ - 3)) {
    rebuild(log2_capacity_ - 1, kSlack);
  }
}

void KeyMap::erase_up_to(uint32_t value) {
  size_t left = 0;
  each([&](uint64_t, uint32_t other) { left += other > value; });
  if (left == size_) return;
  if (left == 0) return clear();
  unsigned log2_capacity = log2_capacity_;
  while (log2_capacity > kLeastLog2 && left < size_t{1} << (log2_capacity - 3)) --log2_capacity;
  rebuild(log2_capacity, kSlack, value);
  size_ = left;
}

void KeyMap::rebuild(unsigned log2_capacity, size_t slack, uint32_t least) {
  for (;; slack *= 2) {
    const size_t slots = (size_t{1} << log2_capacity) + slack;
    AnonymousArray<uint64_t> mixed(slots);
    AnonymousArray<uint32_t> values(slots);
    Appender appender(mixed, values, log2_capacity);
    bool fits = true;
    for (size_t i = 0; fits && i < values_.size(); ++i) {
      if (values_[i] > least) fits = appender.append(mixed_[i], values_[i]);
    }
    if (!fits) continue;
    mixed_.swap(mixed);
    values_.swap(values);
    log2_capacity_ = log2_capacity;
    return;
  }
}

void KeyMap::clear() {
  mixed_ = AnonymousArray<uint64_t>();
  values_ = AnonymousArray<uint32_t>();
  log2_capacity_ = 0;
  size_ = 0;
}

}  // namespace hotrow
