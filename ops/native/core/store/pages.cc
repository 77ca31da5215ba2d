#include "core/store/pages.h"

#include <algorithm>
#include <cstring>

#include "core/base/digest.h"
#include "core/base/dispatch.h"
#include "core/store/redis_length.h"

namespace hotrow {
namespace {

constexpr size_t kRadixBits = 11;
// Rows are gathered at random: they are prefetched this many ahead.
constexpr size_t kRecordsAhead = 12;

// <mark><number>\r\n
size_t put_command_head(size_t pages, char* out) {
  char* at = put_length('*', 1 + 2 * pages, out);
  std::memcpy(at, "$4\r\nMSET\r\n", 10);
  return static_cast<size_t>(at + 10 - out);
}

// Sorts by page, stably: a radix sort, least significant digits first. The rows of a call mostly
// have a narrow range of pages, which takes one pass.
template <typename Row>
void sort_by_page(Row* rows, size_t count, std::vector<Row>* scratch) {
  if (count < 2) return;
  uint64_t least = rows[0].page, most = rows[0].page;
  for (size_t i = 1; i < count; ++i) {
    least = std::min(least, rows[i].page);
    most = std::max(most, rows[i].page);
  }
  scratch->resize(count);
  Row *from = rows, *to = scratch->data();
  for (size_t shift = 0; shift < 64 && (most - least) >> shift != 0; shift += kRadixBits) {
    constexpr uint64_t kMask = (uint64_t{1} << kRadixBits) - 1;
    size_t starts[kMask + 2] = {};
    for (size_t i = 0; i < count; ++i) ++starts[((from[i].page - least) >> shift & kMask) + 1];
    for (size_t d = 0; d <= kMask; ++d) starts[d + 1] += starts[d];
    for (size_t i = 0; i < count; ++i) {
      to[starts[(from[i].page - least) >> shift & kMask]++] = from[i];
    }
    std::swap(from, to);
  }
  if (from != rows) std::copy_n(from, count, rows);
}

void check_place(const PagePlace& place) {
  if (place.pages == 0) {
    fail(Code::kInvalidArgument, "table %zu has 0 pages in a shard; at least 1", place.table);
  }
  if (place.table >= 64 * 64) {
    fail(Code::kInvalidArgument, "table number %zu; at most 4095 tables in a generation",
         place.table);
  }
}

}  // namespace

PackedPages::PackedPages(const PagePlace& place, const int64_t* keys, const std::byte* rows,
                         size_t count, size_t row_bytes, RowVersion version,
                         const std::vector<uint32_t>& only)
    : names_(place.shards, place.number),
      place_(place),
      keys_(keys),
      rows_(rows),
      row_bytes_(row_bytes),
      version_(version) {
  check_place(place);
  std::vector<bool> wanted(place.shards, only.empty());
  for (const uint32_t shard : only) {
    if (shard >= place.shards) {
      fail(Code::kInvalidArgument, "shard %u of a generation with %zu", shard, place.shards);
    }
    wanted[shard] = true;
  }
  Dispatch dispatch;
  dispatch.group(keys, count, static_cast<int32_t>(place.shards), true);
  ordered_.reserve(count);
  std::vector<Row> scratch;
  size_t next = 0;
  for (uint32_t s = 0; s < place.shards; ++s) {
    const size_t first = next;
    next += static_cast<size_t>(dispatch.counts()[s]);
    if (!wanted[s] || next == first) continue;
    Part part;
    part.shard = s;
    part.first = ordered_.size();
    for (size_t i = first; i < next; ++i) {
      ordered_.push_back({page_of(dispatch.grouped()[i], place.pages), dispatch.order()[i]});
    }
    part.last = ordered_.size();
    sort_by_page(ordered_.data() + part.first, next - first, &scratch);
    measure(&part);
    parts_.push_back(part);
  }
}

// Calls visit(first, last, pages) for each command: the rows [first, last) of ordered_.
template <typename Visit>
void PackedPages::visit_commands(const Part& part, Visit&& visit) const {
  const size_t record = kRecordHead + row_bytes_;
  size_t first = part.first, pages = 0;
  for (size_t i = part.first; i < part.last; ++i) {
    if (i + 1 < part.last && ordered_[i + 1].page == ordered_[i].page) continue;
    if (++pages < kMostPages && (i + 1 - first) * record < kMostBytes && i + 1 < part.last) {
      continue;
    }
    visit(first, i + 1, pages);
    first = i + 1;
    pages = 0;
  }
}

// Writes the head of a page before its records [first, last); returns its length.
size_t PackedPages::put_page_head(const Part& part, size_t first, size_t last, char* out) const {
  char name[StoreNames::kLongestPage];
  const size_t length = names_.page(part.shard, place_.table, ordered_[first].page, name);
  char* at = put_length('$', length, out);
  std::memcpy(at, name, length);
  at += length;
  *at++ = '\r';
  *at++ = '\n';
  at = put_length('$', (last - first) * (kRecordHead + row_bytes_), at);
  return static_cast<size_t>(at - out);
}

void PackedPages::measure(Part* part) const {
  char head[2 * StoreNames::kLongestPage + 48];
  part->bytes = (part->last - part->first) * (kRecordHead + row_bytes_);
  visit_commands(*part, [&](size_t first, size_t last, size_t pages) {
    ++part->commands;
    part->bytes += put_command_head(pages, head);
    for (size_t i = first, end; i < last; i = end) {
      for (end = i + 1; end < last && ordered_[end].page == ordered_[i].page;) ++end;
      part->bytes += put_page_head(*part, i, end, head) + 2;
    }
  });
}

void PackedPages::write(size_t number, char* out) const {
  const Part& part = parts_[number];
  visit_commands(part, [&](size_t first, size_t last, size_t pages) {
    out += put_command_head(pages, out);
    for (size_t i = first, end; i < last; i = end) {
      for (end = i + 1; end < last && ordered_[end].page == ordered_[i].page;) ++end;
      out += put_page_head(part, i, end, out);
      for (size_t r = i; r < end; ++r) {
        if (r + kRecordsAhead < part.last) {
          const std::byte* ahead =
              rows_ + static_cast<size_t>(ordered_[r + kRecordsAhead].index) * row_bytes_;
          __builtin_prefetch(keys_ + ordered_[r + kRecordsAhead].index);
          for (size_t b = 0; b < row_bytes_; b += 64) __builtin_prefetch(ahead + b);
        }
        const auto index = static_cast<size_t>(ordered_[r].index);
        std::memcpy(out, keys_ + index, 8);
        std::memcpy(out + 8, &version_, 8);
        std::memcpy(out + kRecordHead, rows_ + index * row_bytes_, row_bytes_);
        out += kRecordHead + row_bytes_;
      }
      *out++ = '\r';
      *out++ = '\n';
    }
  });
}

void add_page_digests(const PagePlace& place, uint32_t shard, uint64_t first_page,
                      const char* const* values, const size_t* lengths, size_t count,
                      size_t row_bytes, uint64_t sums[3]) {
  check_place(place);
  check_shards(place.shards);
  if (shard >= place.shards) {
    fail(Code::kInvalidArgument, "shard %u of a generation with %zu", shard, place.shards);
  }
  const auto name_of_page = [&](uint64_t page) {
    const StoreNames names(place.shards, place.number);
    char name[StoreNames::kLongestPage];
    return std::string(name, names.page(shard, place.table, page, name));
  };
  const size_t record = kRecordHead + row_bytes;
  std::vector<int64_t> seen;
  for (size_t i = 0; i < count; ++i) {
    if (values[i] == nullptr) continue;
    const uint64_t page = first_page + i;
    if (lengths[i] % record != 0) {
      fail(Code::kDataLoss, "page %s has %zu bytes, no whole number of records of %zu",
           name_of_page(page).c_str(), lengths[i], record);
    }
    seen.clear();
    for (const char *at = values[i], *end = at + lengths[i]; at < end; at += record) {
      int64_t key;
      RowVersion version;
      std::memcpy(&key, at, sizeof(key));
      std::memcpy(&version, at + sizeof(key), sizeof(version));
      if (page >= place.pages || store_shard_of(key, place.shards) != shard ||
          page_of(key, place.pages) != page) {
        fail(Code::kDataLoss, "page %s has key %lld, which belongs elsewhere",
             name_of_page(page).c_str(), static_cast<long long>(key));
      }
      seen.push_back(key);
      if ((version & kTombstone) != 0) continue;
      ++sums[0];
      add_row_digest(key, at + kRecordHead, row_bytes, sums + 1);
    }
    std::sort(seen.begin(), seen.end());
    const auto twice = std::adjacent_find(seen.begin(), seen.end());
    if (twice != seen.end()) {
      fail(Code::kDataLoss, "page %s has key %lld twice", name_of_page(page).c_str(),
           static_cast<long long>(*twice));
    }
  }
}

void add_shard_digests(const int64_t* keys, const std::byte* rows, size_t count, size_t row_bytes,
                       size_t shards, uint64_t* sums) {
  check_shards(shards);
  for (size_t i = 0; i < count; ++i) {
    uint64_t* of = sums + 3 * size_t{store_shard_of(keys[i], shards)};
    ++of[0];
    add_row_digest(keys[i], rows + i * row_bytes, row_bytes, of + 1);
  }
}

}  // namespace hotrow
