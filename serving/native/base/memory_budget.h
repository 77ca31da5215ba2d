// A bound of the bytes that all requests under way hold together.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace hotrow_server {

class MemoryBudget {
 public:
  // most_bytes: 0: no bound.
  explicit MemoryBudget(int64_t most_bytes)
      : most_(most_bytes > 0 ? most_bytes : std::numeric_limits<int64_t>::max()) {}
  MemoryBudget(const MemoryBudget&) = delete;

  // Whether so many more bytes would fit now. They are not taken: who announces much and sends
  // little keeps no other request out.
  bool has_room(size_t bytes) const {
    return static_cast<int64_t>(bytes) <= most_ - held_.load(std::memory_order_relaxed);
  }
  // Whether almost nothing is held, after much was: once for each such time.
  bool has_ebbed() {
    const int64_t held = held_.load(std::memory_order_relaxed);
    highest_ = std::max(highest_, held);
    if (held > kLow || highest_ < kHigh) return false;
    highest_ = held;
    return true;
  }
  // The text for a request that is refused.
  std::string refusal() const {
    return "The requests under way would need more than " + std::to_string(most_) +
           " bytes; try again later, or start the server with a larger --request_memory_bytes";
  }

 private:
  friend class HeldBytes;

  bool take(size_t bytes) {
    const auto more = static_cast<int64_t>(bytes);
    if (held_.fetch_add(more, std::memory_order_relaxed) + more <= most_) return true;
    held_.fetch_sub(more, std::memory_order_relaxed);
    return false;
  }

  static constexpr int64_t kLow = 1 << 20, kHigh = 64 << 20;

  const int64_t most_;
  std::atomic<int64_t> held_{0};
  int64_t highest_ = 0;  // that has_ebbed has seen
};

// The bytes of one request; they are free again when it is destroyed. The budget must outlive it.
class HeldBytes {
 public:
  explicit HeldBytes(MemoryBudget* budget) : budget_(budget) {}
  ~HeldBytes() { release(); }
  HeldBytes(const HeldBytes&) = delete;

  // False: there is no room for so many more, and they are not counted.
  bool grow(size_t bytes) {
    if (!budget_->take(bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  // Counts bytes that are there in any case.
  void add(size_t bytes) {
    budget_->held_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    bytes_ += bytes;
  }
  void release() {
    budget_->held_.fetch_sub(static_cast<int64_t>(bytes_), std::memory_order_relaxed);
    bytes_ = 0;
  }
  const MemoryBudget& budget() const { return *budget_; }

 private:
  MemoryBudget* const budget_;
  size_t bytes_ = 0;
};

}  // namespace hotrow_server
