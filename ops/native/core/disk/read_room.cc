#include "core/disk/read_room.h"

#include <algorithm>

namespace hotrow {
namespace {

// The bytes of the whole pages around a line of this size.
size_t small_bytes(size_t line_bytes, size_t alignment) {
  const size_t most = line_bytes + 2 * alignment;
  return (most + DirectFile::kPage - 1) / DirectFile::kPage * DirectFile::kPage;
}

}  // namespace

ReadRoom::ReadRoom(const DirectFile& file, size_t line_bytes, bool asynchronous)
    : small_bytes_(small_bytes(line_bytes, file.alignment())),
      memory_(kSmallCount * small_bytes_ + kLargeCount * kLargeBytes),
      locations_(kLines),
      queue_(file, kSlots, asynchronous) {
  for (size_t slot = kSlots; slot-- > 0;) {
    (slot < kSmallCount ? free_small_ : free_large_).push_back(slot);
  }
}

bool ReadRoom::start(const ReadSpan& span) {
  std::vector<size_t>& free = span.bytes <= small_bytes_ ? free_small_ : free_large_;
  if (free.empty()) return false;
  const size_t slot = free.back();
  free.pop_back();
  spans_[slot] = span;
  queue_.add(slot, span.offset, memory_.data() + offset(slot), span.bytes);
  return true;
}

void ReadRoom::finish(size_t slot) {
  spans_[slot].bytes = 0;
  (slot < kSmallCount ? free_small_ : free_large_).push_back(slot);
}

size_t ReadRoom::oldest(size_t none) const {
  size_t first = none;
  for (const ReadSpan& span : spans_) {
    if (span.bytes != 0) first = std::min(first, span.first);
  }
  return first;
}

}  // namespace hotrow
