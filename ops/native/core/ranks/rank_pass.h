// What a forward pass on several ranks dispatched; its backward pass reuses it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/ranks/facts.h"
#include "core/ranks/table_exchange.h"

namespace hotrow {

// Memory that is not cleared when it grows.
class MessageBytes {
 public:
  std::byte* room(size_t bytes);  // its old contents are lost

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

// The messages of an exchange: for each rank, the parts of the tables one after the other.
// Memory: has `room`; kAlign: parts begin at multiples of it.
template <typename Memory, size_t kAlign>
struct MessagesIn {
  std::vector<size_t> bytes;                   // (R)
  std::vector<std::vector<std::byte*>> parts;  // (T, R)
  Memory memory;
  size_t total = 0;

  // bytes_of(table, rank), rounded up.
  template <typename BytesOf>
  void lay_out(size_t tables, size_t ranks, BytesOf&& bytes_of) {
    bytes.assign(ranks, 0);
    parts.resize(tables);
    for (auto& part : parts) part.resize(ranks);
    total = 0;
    offsets_.clear();
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t t = 0; t < tables; ++t) {
        offsets_.push_back(total + bytes[r]);
        bytes[r] += (bytes_of(t, r) + kAlign - 1) / kAlign * kAlign;
      }
      total += bytes[r];
    }
    std::byte* const at = memory.room(total);
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t t = 0; t < tables; ++t) parts[t][r] = at + offsets_[r * tables + t];
    }
  }

 private:
  std::vector<size_t> offsets_;
};
using Messages = MessagesIn<MessageBytes, 8>;

struct RankPass {
  static constexpr int64_t kHeld = -1;  // a call uses it
  std::atomic<int64_t> ticket{0};       // of the forward pass; 0: no backward pass waits for it
  RankFailure failure;                  // of this rank, in `collect`
  std::vector<std::unique_ptr<TableExchange>> tables;
  std::array<Messages, kLegs> sent, received;
  OwnerCall owner;
  std::vector<size_t> owner_begins;  // (T + 1) of each table's features there
  int64_t owner_ticket = 0;          // of the local forward pass
  // With caches on GPUs, of a prefetched batch: the features of `owner`, copied by the first tier.
  std::shared_ptr<void> ahead;
};

// A pass for exclusive use; the destructor frees it.
class HeldPass {
 public:
  HeldPass() = default;
  explicit HeldPass(RankPass* held) : pass_(held) {}
  HeldPass(HeldPass&& other) noexcept : pass_(std::exchange(other.pass_, nullptr)) {}
  HeldPass& operator=(HeldPass&& other) noexcept {
    std::swap(pass_, other.pass_);
    return *this;
  }
  ~HeldPass() {
    if (pass_ != nullptr) pass_->ticket = 0;
  }

  RankPass* get() const { return pass_; }
  RankPass* operator->() const { return pass_; }
  // Keeps the pass for the backward pass with this ticket.
  void leave_to(int64_t ticket) { std::exchange(pass_, nullptr)->ticket = ticket; }

 private:
  RankPass* pass_ = nullptr;
};

}  // namespace hotrow
