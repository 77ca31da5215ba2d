// Buffers for the reads of one request, and a queue of reads in flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/anonymous_array.h"
#include "core/disk/direct_file.h"

namespace hotrow {

// A range of a file that holds lines [first, last) of a request, or some of them.
struct ReadSpan {
  uint64_t offset = 0;
  size_t bytes = 0;  // 0: nothing
  size_t first = 0, last = 0;
};

// 64 small buffers, for ranges around a single line, and 8 large ones.
class ReadRoom {
 public:
  static constexpr size_t kSmallCount = 64, kLargeCount = 8;
  static constexpr size_t kSlots = kSmallCount + kLargeCount;
  static constexpr size_t kLargeBytes = size_t{256} << 10;
  // Lines of a request that may be in flight.
  static constexpr size_t kLines = size_t{1} << 14;

  ReadRoom(const DirectFile& file, size_t line_bytes, bool asynchronous);

  // Takes a buffer and adds a read of the span to the queue; false where no buffer is free.
  bool start(const ReadSpan& span);
  // As ReadQueue::wait.
  const std::vector<ReadQueue::Done>& wait(size_t at_least) { return queue_.wait(at_least); }
  size_t pending() const { return queue_.pending(); }
  const ReadSpan& span(size_t slot) const { return spans_[slot]; }
  const std::byte* data(size_t slot) const { return memory_.data() + offset(slot); }
  // Frees the buffer of a finished read.
  void finish(size_t slot);
  // The first line of a read that was started and not finished, or `none`.
  size_t oldest(size_t none) const;
  // The location of the request's i-th line; a ring.
  uint32_t& location(size_t i) { return locations_[i % kLines]; }
  size_t bytes() const { return memory_.bytes() + kLines * sizeof(uint32_t); }

 private:
  size_t offset(size_t slot) const {
    return slot < kSmallCount ? slot * small_bytes_
                              : kSmallCount * small_bytes_ + (slot - kSmallCount) * kLargeBytes;
  }

  size_t small_bytes_;
  AnonymousArray<std::byte> memory_;
  std::array<ReadSpan, kSlots> spans_;
  std::vector<size_t> free_small_, free_large_;
  std::vector<uint32_t> locations_;
  ReadQueue queue_;  // last: it ends its reads before their buffers are freed
};

}  // namespace hotrow
