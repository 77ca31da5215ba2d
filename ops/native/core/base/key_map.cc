#include "core/base/key_map.h"

#include <algorithm>
#include <exception>

#include "core/base/room.h"

namespace hotrow {
namespace {

// Appends keys that come in ascending order.
class Appender {
 public:
  Appender(AnonymousArray<uint64_t>& mixed, AnonymousArray<uint32_t>& values, size_t slots,
           unsigned log2_capacity)
      : mixed_(mixed), values_(values), slots_(slots), shift_(64 - log2_capacity) {}
  // False: there is no room before the last slot.
  bool append(uint64_t mixed, uint32_t value) {
    const size_t slot = std::max<size_t>(mixed >> shift_, next_);
    if (slot + 1 >= slots_) return false;
    mixed_[slot] = mixed;
    values_[slot] = value;
    next_ = slot + 1;
    return true;
  }

 private:
  AnonymousArray<uint64_t>& mixed_;
  AnonymousArray<uint32_t>& values_;
  size_t slots_;
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

void KeyMap::set(uint32_t* found, uint32_t value) {
  record(mixed_[static_cast<size_t>(found - values_.data())], *found);
  *found = value;
}

void KeyMap::insert(int64_t key, uint32_t value) {
  const uint64_t mixed = mixed_of(key);
  if (log2_capacity_ == 0) rebuild(kLeastLog2, kSlack);
  if (4 * (size_ + 1) > size_t{3} << log2_capacity_) rebuild(log2_capacity_ + 1, kSlack);
  for (;;) {
    size_t end = lower_bound(mixed);
    while (values_[end] != 0) ++end;
    if (end + 1 < values_.size()) break;
    // The run at the end of the array fills the slack; the number of homes need not grow.
    rebuild(log2_capacity_, 2 * (values_.size() - (size_t{1} << log2_capacity_)));
  }
  record(mixed, 0);
  place(mixed, value);
}

void KeyMap::erase(uint32_t* found) {
  const size_t slot = static_cast<size_t>(found - values_.data());
  record(mixed_[slot], *found);
  remove(slot);
  if (!recording_) shrink();
}

void KeyMap::reserve(size_t more) {
  if (more == 0) return;
  unsigned log2_capacity = std::max(log2_capacity_, kLeastLog2);
  while (4 * (size_ + more) > size_t{3} << log2_capacity) ++log2_capacity;
  if (log2_capacity != log2_capacity_) rebuild(log2_capacity, std::max(kSlack, 2 * more));
  // Each key may move the keys at the end of the array by a slot, and the last slot stays empty.
  for (;;) {
    size_t end = values_.size();
    while (end > 0 && values_[end - 1] == 0) --end;
    if (end + more < values_.size()) return;
    // The number of homes need not grow.
    rebuild(log2_capacity_, 2 * (values_.size() - (size_t{1} << log2_capacity_) + more));
  }
}

void KeyMap::place(uint64_t mixed, uint32_t value) {
  const size_t slot = lower_bound(mixed);
  size_t end = slot;
  while (values_[end] != 0) ++end;
  for (size_t i = end; i > slot; --i) {
    mixed_[i] = mixed_[i - 1];
    values_[i] = values_[i - 1];
  }
  mixed_[slot] = mixed;
  values_[slot] = value;
  ++size_;
}

void KeyMap::remove(size_t slot) {
  for (; values_[slot + 1] != 0 && home(mixed_[slot + 1]) <= slot; ++slot) {
    mixed_[slot] = mixed_[slot + 1];
    values_[slot] = values_[slot + 1];
  }
  values_[slot] = 0;
  --size_;
}

void KeyMap::shrink() noexcept {
  try {
    while (log2_capacity_ > kLeastLog2 && size_ < size_t{1} << (log2_capacity_ - 3)) {
      rebuild(log2_capacity_ - 1, kSlack);
    }
  } catch (const std::exception&) {
    // The larger array does, too.
  }
}

void KeyMap::begin_changes() {
  changes_.clear();
  recording_ = true;
}

void KeyMap::keep_changes() noexcept {
  changes_.clear();
  recording_ = false;
  shrink();
}

void KeyMap::undo_changes() noexcept {
  for (; !changes_.empty(); changes_.pop_back()) {
    const auto [mixed, before] = changes_.back();
    const size_t slot = lower_bound(mixed);
    const bool found = values_[slot] != 0 && mixed_[slot] == mixed;
    if (before == 0) {
      remove(slot);
    } else if (found) {
      values_[slot] = before;
    } else {
      place(mixed, before);  // `rebuild` left room
    }
  }
  keep_changes();
}

void KeyMap::reserve_change() {
  if (recording_) make_room(changes_);
}

void KeyMap::record(uint64_t mixed, uint32_t before) {
  if (!recording_) return;
  make_room(changes_);
  changes_.push_back({mixed, before});
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
    AnonymousArray<uint64_t> mixed(slots + changes_.size());
    AnonymousArray<uint32_t> values(slots + changes_.size());
    Appender appender(mixed, values, slots, log2_capacity);
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
  changes_.clear();
}

}  // namespace hotrow
