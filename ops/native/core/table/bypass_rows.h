// Rows of a partition on disk that are in memory although the device tier has no slot for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/room.h"

namespace hotrow {

// The header and line of each row, by place. A row here is newer than its line on disk. Not
// synchronized.
class BypassRows {
 public:
  size_t size() const { return rows_.size(); }
  size_t bytes(size_t stride) const { return (rows_.size() + spare_.size()) * stride; }

  // Null: the row is not here. The memory does not move until the row is removed.
  std::byte* find(uint32_t place) const {
    if (rows_.empty()) return nullptr;
    const auto found = rows_.find(place);
    return found == rows_.end() ? nullptr : found->second.row.get();
  }
  // Adds memory for a row that is not here; the caller fills it. stride: bytes of a row, always the
  // same.
  std::byte* add(uint32_t place, size_t stride) {
    if (spare_.empty()) spare_.push_back(std::unique_ptr<std::byte[]>(new std::byte[stride]));
    Entry& entry = rows_[place];
    entry.row = std::move(spare_.back());
    spare_.pop_back();
    return entry.row.get();
  }
  void remove(uint32_t place) {
    const auto found = rows_.find(place);
    if (found != rows_.end()) rows_.erase(found);
  }
  // Marks the row as used by the lookup in flight.
  void use(uint32_t place) { rows_.at(place).used = true; }
  enum class Keep { kUsed, kNone };
  // Calls leave(place, row) for all rows, or for those that were not used since the last call, and
  // removes them.
  template <typename Leave>
  void end_lookup(Keep keep, Leave&& leave) {
    for (auto at = rows_.begin(); at != rows_.end();) {
      if (std::exchange(at->second.used, false) && keep == Keep::kUsed) {
        ++at;
        continue;
      }
      make_room(spare_);
      leave(at->first, at->second.row.get());
      spare_.push_back(std::move(at->second.row));
      at = rows_.erase(at);
    }
    // Keep as much spare memory as there are rows now.
    if (spare_.size() > rows_.size()) spare_.resize(rows_.size());
  }
  void clear() {
    rows_.clear();
    spare_.clear();
  }

 private:
  struct Entry {
    std::unique_ptr<std::byte[]> row;
    bool used = false;
  };
  std::unordered_map<uint32_t, Entry> rows_;
  std::vector<std::unique_ptr<std::byte[]>> spare_;
};

}  // namespace hotrow
