#include "core/store/memory_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include "core/base/hash.h"
#include "core/base/status.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

constexpr size_t kPendingKeys = 16;  // keys whose records are on their way at a time
constexpr size_t kKeysBetweenClocks = 8192;
constexpr size_t kLeastSlots = 64;  // slots
constexpr uint32_t kMostRows = std::numeric_limits<uint32_t>::max() - 1;

}  // namespace

// Records in the stores' form (key | version | row), indexed by open addressing. Removed rows leave
// their tombstones.
class MemoryReader::Records {
 public:
  explicit Records(size_t row_bytes) : row_bytes_(row_bytes), stride_(kRecordHead + row_bytes) {
    grow(kLeastSlots / 2);
  }

  size_t rows() const {
    std::shared_lock lock(mutex_);
    return found_;
  }

  void reserve(size_t rows) {
    std::unique_lock lock(mutex_);
    if (rows > room_) grow(rows);
  }

  void put(const int64_t* keys, size_t count, const std::byte* rows, const RowVersion* versions) {
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      const RowVersion version = versions == nullptr ? 0 : versions[i];
      const bool tombstone = (version & kTombstone) != 0;
      put_one(keys[i], tombstone ? nullptr : rows + i * row_bytes_, version);
    }
  }

  // Reads keys [first, last).
  void read(const ReadRequest& request, size_t first, size_t last) const {
    std::shared_lock lock(mutex_);
    // Slots are prefetched two blocks ahead, their records one block ahead.
    const size_t mask = slots_.size() - 1;
    for (size_t begin = first; begin < last + 2 * kPendingKeys; begin += kPendingKeys) {
      for (size_t i = begin; i < std::min(begin + kPendingKeys, last); ++i) {
        __builtin_prefetch(&slots_[hash_of(request.keys[i]) & mask]);
      }
      if (begin >= first + kPendingKeys) {
        for (size_t i = begin - kPendingKeys; i < std::min(begin, last); ++i) {
          const uint32_t slot = slots_[hash_of(request.keys[i]) & mask];
          if (slot == 0) continue;
          const std::byte* record = record_at(slot);
          __builtin_prefetch(record);
          __builtin_prefetch(record + stride_ - 1);
        }
      }
      if (begin >= first + 2 * kPendingKeys) {
        for (size_t i = begin - 2 * kPendingKeys; i < std::min(begin - kPendingKeys, last); ++i) {
          read_one(request, i);
        }
      }
    }
  }

 private:
  static uint64_t hash_of(int64_t key) { return mix64(static_cast<uint64_t>(key)); }
  // slot: 1 for the first record.
  const std::byte* record_at(uint32_t slot) const {
    return bytes_.data() + size_t{slot - 1} * stride_;
  }
  std::byte* record_at(uint32_t slot) { return bytes_.data() + size_t{slot - 1} * stride_; }
  static int64_t key_of(const std::byte* record) {
    int64_t key;
    std::memcpy(&key, record, sizeof(key));
    return key;
  }
  static RowVersion version_of(const std::byte* record) {
    RowVersion version;
    std::memcpy(&version, record + sizeof(int64_t), sizeof(version));
    return version;
  }

  // The key's slot, or the free slot for it.
  size_t place_of(int64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t place = hash_of(key) & mask;
    while (slots_[place] != 0 && key_of(record_at(slots_[place])) != key)
      place = (place + 1) & mask;
    return place;
  }

  void read_one(const ReadRequest& request, size_t i) const {
    const uint32_t slot = slots_[place_of(request.keys[i])];
    const RowVersion version = slot == 0 ? 0 : version_of(record_at(slot));
    const bool found = slot != 0 && (version & kTombstone) == 0;
    request.states[i] = found ? ReadState::kFound : ReadState::kUnknown;
    if (request.versions != nullptr) request.versions[i] = version;
    if (found) {
      std::memcpy(request.rows + i * row_bytes_, record_at(slot) + kRecordHead, row_bytes_);
    }
  }

  void put_one(int64_t key, const std::byte* row, RowVersion version) {
    size_t place = place_of(key);
    if (slots_[place] == 0) {
      if (records_ == room_) {
        grow(room_ * 2);
        place = place_of(key);
      }
      slots_[place] = static_cast<uint32_t>(++records_);
      std::memcpy(record_at(slots_[place]), &key, sizeof(key));
      found_ += (version & kTombstone) == 0;
    } else {
      const RowVersion present = version_of(record_at(slots_[place]));
      if ((version & ~kTombstone) < (present & ~kTombstone)) return;
      found_ += (version & kTombstone) == 0;
      found_ -= (present & kTombstone) == 0;
    }
    std::byte* record = record_at(slots_[place]);
    std::memcpy(record + sizeof(int64_t), &version, sizeof(version));
    if ((version & kTombstone) == 0) {
      std::memcpy(record + kRecordHead, row, row_bytes_);
    } else {
      std::memset(record + kRecordHead, 0, row_bytes_);
    }
  }

  void grow(size_t room) {
    if (room > kMostRows) {
      fail(Code::kResourceExhausted, "%zu rows of a table in memory; at most %u", room, kMostRows);
    }
    size_t slots = kLeastSlots;
    while (slots < 2 * room) slots *= 2;
    AnonymousArray<std::byte> bytes(room * stride_);
    if (records_ > 0) std::memcpy(bytes.data(), bytes_.data(), records_ * stride_);
    AnonymousArray<uint32_t> places(slots);
    bytes_.swap(bytes);
    slots_.swap(places);
    room_ = room;
    for (uint32_t slot = 1; slot <= records_; ++slot) {
      slots_[place_of(key_of(record_at(slot)))] = slot;
    }
  }

  const size_t row_bytes_;
  const size_t stride_;
  mutable std::shared_mutex mutex_;
  AnonymousArray<uint32_t> slots_;   // number of the record, from 1; 0: free
  AnonymousArray<std::byte> bytes_;  // (room, stride)
  size_t room_ = 0;
  size_t records_ = 0;
  size_t found_ = 0;
};

MemoryReader::MemoryReader(std::vector<StoredTable> tables) : tables_(std::move(tables)) {
  for (const StoredTable& table : tables_) {
    if (table.width == 0) {
      fail(Code::kInvalidArgument, "table %s: a width of 0", table.name.c_str());
    }
    records_.push_back(std::make_unique<Records>(table.row_bytes()));
  }
}

MemoryReader::~MemoryReader() = default;

MemoryReader::Records& MemoryReader::records(size_t table) const {
  if (table >= records_.size()) {
    fail(Code::kInvalidArgument, "table number %zu; there are %zu tables", table, records_.size());
  }
  return *records_[table];
}

ReadFailure MemoryReader::read(const ReadRequest* requests, size_t count, Deadline deadline) const {
  ReadFailure failure;
  for (size_t r = 0; r < count; ++r) {
    const ReadRequest& request = requests[r];
    const Records& records = this->records(request.table);
    for (size_t first = 0; first < request.count; first += kKeysBetweenClocks) {
      const size_t last = std::min(first + kKeysBetweenClocks, request.count);
      if (failure.code == Code::kOk && std::chrono::steady_clock::now() >= deadline) {
        failure = {Code::kUnavailable, "the deadline passed while rows were read from memory"};
      }
      if (failure.code == Code::kOk) {
        records.read(request, first, last);
      } else {
        std::fill(request.states + first, request.states + last, ReadState::kFailed);
      }
    }
  }
  return failure;
}

void MemoryReader::reserve(size_t table, size_t rows) { records(table).reserve(rows); }

void MemoryReader::put(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
                       const RowVersion* versions) {
  records(table).put(keys, count, rows, versions);
}

size_t MemoryReader::rows(size_t table) const { return records(table).rows(); }

}  // namespace hotrow
