// The part of the C ABI for stored rows and their pages.
#include "core/abi/pages.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/abi/guard.h"
#include "core/store/pages.h"
#include "core/store/row_codec.h"
#include "core/store/store_layout.h"

struct hr_packed_pages {
  hotrow::PackedPages pages;
};

namespace {

using hotrow::Code;
using hotrow::capi::guarded;

hotrow::PagePlace to_place(const hr_page_place& place) {
  return {place.shards, place.number, place.table, place.pages};
}

hr_bytes copy_bytes(const void* data, size_t size) {
  auto* copy = static_cast<uint8_t*>(std::malloc(size == 0 ? 1 : size));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, data, size);
  return {copy, size};
}

// Names as they are collected.
struct Names {
  std::string text;
  std::vector<uint64_t> offsets = {0};

  void add(const char* name, size_t bytes) {
    text.append(name, bytes);
    offsets.push_back(text.size());
  }
  void copy_to(hr_names* names) const {
    *names = {};
    names->names = copy_bytes(text.data(), text.size());
    try {
      names->offsets = copy_bytes(offsets.data(), offsets.size() * sizeof(uint64_t));
    } catch (...) {
      hr_names_free(names);
      throw;
    }
  }
};

}  // namespace

int hr_row_bytes(const char* type, size_t width, size_t* bytes) {
  return guarded([&] { *bytes = hotrow::row_bytes(hotrow::stored_type_of(type), width); });
}

int hr_encode_rows(const char* type, const float* weights, size_t count, size_t width,
                   uint8_t* rows) {
  return guarded([&] {
    const hotrow::StoredType to = hotrow::stored_type_of(type);
    const size_t bytes = hotrow::row_bytes(to, width);
    auto* out = reinterpret_cast<std::byte*>(rows);
    for (size_t i = 0; i < count; ++i) {
      hotrow::encode_row(to, weights + i * width, width, out + i * bytes);
    }
  });
}

int hr_decode_rows(const char* type, const uint8_t* rows, size_t count, size_t width,
                   float* weights) {
  return guarded([&] {
    const hotrow::StoredType from = hotrow::stored_type_of(type);
    const size_t bytes = hotrow::row_bytes(from, width);
    const auto* in = reinterpret_cast<const std::byte*>(rows);
    for (size_t i = 0; i < count; ++i) {
      hotrow::decode_row(from, in + i * bytes, width, weights + i * width);
    }
  });
}

void hr_names_free(hr_names* names) {
  hr_bytes_free(&names->names);
  hr_bytes_free(&names->offsets);
}

int hr_store_markers(size_t shards, uint64_t number, hr_names* markers, uint32_t* slots) {
  return guarded([&] {
    const hotrow::StoreNames names(shards, number);
    Names collected;
    for (size_t s = 0; s < shards; ++s) {
      collected.add(names.marker(s).data(), names.marker(s).size());
      if (slots != nullptr) slots[s] = names.slot(s);
    }
    collected.copy_to(markers);
  });
}

int hr_store_page_names(const hr_page_place* place, size_t shard, uint64_t first, size_t count,
                        hr_names* names) {
  return guarded([&] {
    const hotrow::StoreNames of(place->shards, place->number);
    if (shard >= place->shards) {
      hotrow::fail(Code::kInvalidArgument, "shard %zu of a generation with %zu", shard,
                   place->shards);
    }
    if (first > place->pages || count > place->pages - first) {
      hotrow::fail(Code::kInvalidArgument, "%zu pages from number %llu of a table with %llu", count,
                   static_cast<unsigned long long>(first),
                   static_cast<unsigned long long>(place->pages));
    }
    Names collected;
    char name[hotrow::StoreNames::kLongestPage];
    for (size_t i = 0; i < count; ++i) {
      collected.add(name, of.page(shard, place->table, first + i, name));
    }
    collected.copy_to(names);
  });
}

int hr_store_pages_of(const int64_t* keys, size_t count, size_t shards, uint64_t pages,
                      int32_t* shard, int64_t* page) {
  return guarded([&] {
    hotrow::check_shards(shards);
    for (size_t i = 0; i < count; ++i) {
      shard[i] = static_cast<int32_t>(hotrow::store_shard_of(keys[i], shards));
      page[i] = static_cast<int64_t>(hotrow::page_of(keys[i], pages));
    }
  });
}

int hr_pages_pack(const hr_page_place* place, const int64_t* keys, const uint8_t* rows,
                  size_t count, size_t row_bytes, uint64_t version, const uint32_t* only,
                  size_t only_count, hr_packed_pages** pages) {
  return guarded([&] {
    *pages = new hr_packed_pages{{to_place(*place), keys, reinterpret_cast<const std::byte*>(rows),
                                  count, row_bytes, version,
                                  std::vector<uint32_t>(only, only + only_count)}};
  });
}

void hr_pages_free(hr_packed_pages* pages) { delete pages; }

size_t hr_pages_parts(const hr_packed_pages* pages) { return pages->pages.size(); }

void hr_pages_part(const hr_packed_pages* pages, size_t part, uint32_t* shard, size_t* commands,
                   size_t* bytes) {
  *shard = pages->pages.shard(part);
  *commands = pages->pages.commands(part);
  *bytes = pages->pages.bytes(part);
}

int hr_pages_write(const hr_packed_pages* pages, size_t part, char* out) {
  return guarded([&] { pages->pages.write(part, out); });
}

int hr_pages_digest(const hr_page_place* place, size_t shard, uint64_t first_page,
                    const char* const* values, const size_t* lengths, size_t count,
                    size_t row_bytes, uint64_t sums[3]) {
  return guarded([&] {
    hotrow::add_page_digests(to_place(*place), static_cast<uint32_t>(shard), first_page, values,
                             lengths, count, row_bytes, sums);
  });
}

int hr_rows_digest(const int64_t* keys, const uint8_t* rows, size_t count, size_t row_bytes,
                   size_t shards, uint64_t* sums) {
  return guarded([&] {
    hotrow::add_shard_digests(keys, reinterpret_cast<const std::byte*>(rows), count, row_bytes,
                              shards, sums);
  });
}
