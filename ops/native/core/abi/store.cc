#include "core/abi/store.h"

#include <chrono>
#include <memory>

#include "core/abi/guard.h"
#include "core/lmdb/records.h"
#include "core/lmdb/rows.h"
#include "core/store/stored_reader.h"

using hotrow::capi::guarded;

struct hr_lmdb_writer {
  hotrow::LmdbWriter writer;
};
struct hr_lmdb_blocks {
  hotrow::LmdbBlocks blocks;
};
struct hr_lmdb_records {
  hotrow::LmdbRecords records;
};

namespace {

std::optional<std::string> optional_text(const char* text) {
  if (text == nullptr) return std::nullopt;
  return text;
}

const hotrow::LmdbReader& lmdb(const hr_reader* reader) {
  const auto* found = dynamic_cast<const hotrow::LmdbReader*>(reader->reader.get());
  if (found == nullptr) hotrow::fail(hotrow::Code::kInternal, "not a reader of LMDB");
  return *found;
}

}  // namespace

int hr_lmdb_reader_open(const char* directory, const char* generation, int complete,
                        hr_reader** reader) {
  return guarded([&] {
    *reader =
        new hr_reader{std::make_shared<hotrow::LmdbReader>(directory, generation, complete != 0)};
  });
}

void hr_reader_close(hr_reader* reader) { delete reader; }

size_t hr_reader_table_count(const hr_reader* reader) { return reader->reader->tables().size(); }

void hr_reader_table(const hr_reader* reader, size_t number, hr_stored_table* table) {
  const hotrow::StoredTable& from = reader->reader->tables().at(number);
  *table = {from.name.c_str(), from.width,         hotrow::name_of(from.type),
            from.row_bytes(),  from.default_value, from.rows};
}

int hr_reader_read(const hr_reader* reader, const hr_read_request* requests, size_t count,
                   double timeout_seconds, int* failure) {
  return guarded([&] {
    std::vector<hotrow::ReadRequest> asked(count);
    for (size_t r = 0; r < count; ++r) {
      const hr_read_request& from = requests[r];
      if (from.table >= reader->reader->tables().size()) {
        hotrow::fail(hotrow::Code::kInvalidArgument, "table %zu; there are %zu", from.table,
                     reader->reader->tables().size());
      }
      asked[r] = {from.table,    from.keys,
                  from.count,    reinterpret_cast<std::byte*>(from.rows),
                  from.versions, reinterpret_cast<hotrow::ReadState*>(from.states)};
    }
    const auto budget = std::chrono::duration<double>(timeout_seconds);
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(budget);
    const hotrow::ReadFailure failed = reader->reader->read(asked.data(), count, deadline);
    *failure = static_cast<int>(failed.code);
    hotrow::capi::last_error() = failed.message;
  });
}

int hr_lmdb_reader_size(const hr_reader* reader, size_t table, size_t* entries) {
  return guarded([&] { *entries = lmdb(reader).size(table); });
}

int hr_lmdb_reader_scan(const hr_reader* reader, size_t table, int from_start, int64_t after,
                        size_t count, int64_t* keys, uint8_t* rows, uint64_t* versions,
                        size_t* written) {
  return guarded([&] {
    *written = lmdb(reader).scan(table, from_start != 0, after, count, keys,
                                 reinterpret_cast<std::byte*>(rows), versions);
  });
}

size_t hr_lmdb_reader_shards(const hr_reader* reader) { return lmdb(reader).shards(); }

int hr_lmdb_reader_digests(const hr_reader* reader, size_t table, uint64_t* digests) {
  return guarded([&] { lmdb(reader).digests(table, digests); });
}

int hr_lmdb_writer_open(const char* directory, const char* generation, const char* table,
                        size_t row_bytes, hr_lmdb_writer** writer) {
  return guarded([&] { *writer = new hr_lmdb_writer{{directory, generation, table, row_bytes}}; });
}

int hr_lmdb_writer_write(hr_lmdb_writer* writer, const int64_t* keys, size_t count,
                         const uint8_t* rows, uint64_t version) {
  return guarded([&] {
    writer->writer.write(keys, count, reinterpret_cast<const std::byte*>(rows), version);
  });
}

int hr_lmdb_writer_put(hr_lmdb_writer* writer, const int64_t* keys, size_t count,
                       const uint8_t* rows, const uint64_t* versions, size_t* written) {
  return guarded([&] {
    *written = writer->writer.put(keys, count, reinterpret_cast<const std::byte*>(rows), versions);
  });
}

void hr_lmdb_writer_close(hr_lmdb_writer* writer) { delete writer; }

int hr_lmdb_drop_table(const char* directory, const char* generation, const char* table) {
  return guarded(
      [&] { hotrow::LmdbEnvironment::open(directory, false)->drop_table(generation, table); });
}

int hr_lmdb_blocks_open(const char* directory, const char* generation, const char* name,
                        hr_lmdb_blocks** blocks) {
  return guarded([&] { *blocks = new hr_lmdb_blocks{{directory, generation, name}}; });
}

void hr_lmdb_blocks_close(hr_lmdb_blocks* blocks) { delete blocks; }

int hr_lmdb_blocks_put(hr_lmdb_blocks* blocks, const int64_t* numbers, const char* const* bytes,
                       const size_t* lengths, size_t count) {
  return guarded([&] {
    std::vector<std::string_view> given;
    for (size_t i = 0; i < count; ++i) given.emplace_back(bytes[i], lengths[i]);
    blocks->blocks.put(std::vector<int64_t>(numbers, numbers + count), given);
  });
}

int hr_lmdb_blocks_get(const hr_lmdb_blocks* blocks, int64_t number, hr_take_bytes take,
                       void* context) {
  return guarded([&] {
    const auto block = blocks->blocks.get(number);
    if (block) take(context, block->data(), block->size());
  });
}

int hr_lmdb_records_open(const char* directory, int create, int64_t patience_ms,
                         hr_lmdb_records** records) {
  return guarded([&] {
    auto opened = std::make_unique<hr_lmdb_records>(
        hr_lmdb_records{hotrow::LmdbRecords(directory, create != 0)});
    opened->records.set_patience(std::chrono::milliseconds(patience_ms));
    *records = opened.release();
  });
}

void hr_lmdb_records_close(hr_lmdb_records* records) { delete records; }

int hr_lmdb_records_get(const hr_lmdb_records* records, const char* name, hr_take_text take,
                        void* context) {
  return guarded([&] {
    const auto text = records->records.get(name);
    if (text) take(context, text->data(), text->size());
  });
}

int hr_lmdb_records_swap(hr_lmdb_records* records, const char* const* names,
                         const char* const* expected, const char* const* texts, size_t count,
                         int* swapped) {
  return guarded([&] {
    std::vector<hotrow::LmdbRecords::Change> changes;
    for (size_t i = 0; i < count; ++i) {
      changes.push_back({names[i], optional_text(expected[i]), optional_text(texts[i])});
    }
    *swapped = records->records.swap(changes) ? 1 : 0;
  });
}

int hr_lmdb_records_list(const hr_lmdb_records* records, const char* prefix, hr_take_text take,
                         void* context) {
  return guarded([&] {
    records->records.list(
        prefix, [&](const std::string& name) { take(context, name.data(), name.size()); });
  });
}

int hr_lmdb_records_next_number(hr_lmdb_records* records, uint64_t* number) {
  return guarded([&] { *number = records->records.next_number(); });
}
