#include "core/base/key_index.h"

#include <cstring>

#include "core/base/room.h"
#include "core/base/status.h"

namespace hotrow {
namespace {

// 2^26 segments in each of 32 partitions: more rows than row numbers.
constexpr uint32_t kDeepest = 26;

}  // namespace

KeyIndex::Bucket KeyIndex::nothing_;

void KeyIndex::Segment::put(uint64_t hash, uint32_t row) {
  for (uint32_t b = place(hash);; b = after(b)) {
    Bucket& bucket = this->bucket(b);
    const uint32_t open = bucket.match(0);
    if (open == 0) {
      if (bucket.overflowed != 0xffff) ++bucket.overflowed;
      continue;
    }
    const int slot = __builtin_ctz(open);
    bucket.tags[slot] = tag_of(hash);
    bucket.rows[slot] = row;
    ++size;
    return;
  }
}

void KeyIndex::Segment::list(std::vector<uint32_t>* rows) const {
  for (uint32_t b = 0; b < buckets; ++b) {
    const Bucket& bucket = this->bucket(b);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (bucket.tags[slot] != 0) rows->push_back(bucket.rows[slot]);
    }
  }
}

void KeyIndex::Segment::wipe() {
  for (uint32_t b = 0; b < buckets; b += kUnitBuckets) {
    std::memset(static_cast<void*>(units[b / kUnitBuckets]), 0, kUnitBuckets * sizeof(Bucket));
  }
  size = 0;
}

void KeyIndex::take_units(size_t count) {
  while (spare_units_.size() < count) {
    make_room(spare_units_);
    // Zero bytes are an empty unit.
    spare_units_.push_back(reinterpret_cast<Bucket*>(memory_->take(kUnitBuckets * sizeof(Bucket))));
  }
}

void KeyIndex::add_unit(Segment* segment) {
  segment->units[segment->buckets / kUnitBuckets] = spare_units_.back();
  spare_units_.pop_back();
  segment->buckets += kUnitBuckets;
}

void KeyIndex::grow(uint32_t number) {
  if (segments_[number].buckets == kUnits * kUnitBuckets) return split(number);
  take_units(1);
  Segment& segment = segments_[number];
  segment.wipe();
  add_unit(&segment);
  for (size_t i = 0; i < rows_.size(); ++i) segment.put(hashes_[i], rows_[i]);
}

// The next bit of the hash chooses the half. Each half gets half of the units.
void KeyIndex::split(uint32_t number) {
  const uint32_t depth = segments_[number].depth + 1;
  if (depth > kDeepest) {
    fail(Code::kResourceExhausted, "the keys of a table are not spread: too many share a hash");
  }
  const unsigned bit = 59 - depth;
  size_t to_other = 0;
  for (uint64_t hash : hashes_) to_other += (hash >> bit) & 1;
  const size_t here = rows_.size() - to_other;
  // The hash puts about half of the rows in each; in any case, all rows must fit.
  const auto units_for = [](size_t rows) {
    Segment segment;
    uint32_t units = kUnits / 2;
    for (;; ++units) {
      segment.buckets = units * kUnitBuckets;
      if (units == kUnits || segment.limit() > rows) return units;
    }
  };
  take_units(units_for(here) + units_for(to_other) - kUnits);
  make_room(segments_);
  if (depth > depth_) {
    std::vector<uint32_t> doubled(directory_.size() * 2);
    for (size_t i = 0; i < doubled.size(); ++i) doubled[i] = directory_[i / 2];
    directory_.swap(doubled);
    ++depth_;
  }
  const uint32_t other_number = static_cast<uint32_t>(segments_.size());
  segments_.emplace_back();
  Segment& segment = segments_[number];
  Segment& other = segments_[other_number];
  segment.wipe();
  for (uint32_t u = 0; u < kUnits / 2; ++u) {
    other.units[u] = segment.units[kUnits / 2 + u];
    segment.units[kUnits / 2 + u] = nullptr;
  }
  segment.buckets = other.buckets = kUnits / 2 * kUnitBuckets;
  segment.depth = other.depth = depth;
  while (other.limit() <= to_other && other.buckets < kUnits * kUnitBuckets) add_unit(&other);
  while (segment.limit() <= here && segment.buckets < kUnits * kUnitBuckets) add_unit(&segment);
  for (size_t i = 0; i < rows_.size(); ++i) {
    ((hashes_[i] >> bit) & 1 ? other : segment).put(hashes_[i], rows_[i]);
  }
  for (size_t i = 0; i < directory_.size(); ++i) {
    if (directory_[i] != number) continue;
    // Bit `depth` of the directory's place, counted from its top.
    if ((i >> (depth_ - depth)) & 1) directory_[i] = other_number;
  }
}

void KeyIndex::erase(uint64_t hash, uint32_t row) {
  Segment& segment = segments_[directory_[directory_place(hash)]];
  for (uint32_t b = segment.place(hash);; b = segment.after(b)) {
    Bucket& bucket = segment.bucket(b);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (bucket.tags[slot] == 0 || bucket.rows[slot] != row) continue;
      bucket.tags[slot] = 0;
      --segment.size;
      --size_;
      return;
    }
    if (bucket.overflowed != 0xffff) --bucket.overflowed;
  }
}

void KeyIndex::clear() {
  spare_units_.clear();
  segments_.assign(1, Segment{});
  segments_[0].units[0] = &nothing_;
  directory_.assign(1, 0);
  depth_ = 0;
  size_ = 0;
}

}  // namespace hotrow
