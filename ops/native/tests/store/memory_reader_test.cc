#include "core/store/memory_reader.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "tests/error_code.h"
#include "tests/stored_rows.h"

namespace hotrow {
namespace {

struct Answer {
  Answer(const RowReader& reader, size_t table, std::vector<int64_t> keys, Deadline deadline)
      : keys(std::move(keys)),
        row_bytes(reader.tables()[table].row_bytes()),
        rows(this->keys.size() * row_bytes),
        versions(this->keys.size(), 77),
        states(this->keys.size(), ReadState::kFailed) {
    const ReadRequest request = {table,       this->keys.data(), this->keys.size(),
                                 rows.data(), versions.data(),   states.data()};
    failure = reader.read(&request, 1, deadline);
  }
  std::vector<std::byte> row(size_t i) const {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(i * row_bytes);
    return {begin, begin + static_cast<std::ptrdiff_t>(row_bytes)};
  }
  std::vector<int64_t> keys;
  size_t row_bytes;
  std::vector<std::byte> rows;
  std::vector<RowVersion> versions;
  std::vector<ReadState> states;
  ReadFailure failure;
};

}  // namespace

TEST_CASE("memory reader: rows of all types are read back, and unknown keys are unknown") {
  MemoryReader reader({stored_table("a", 3, StoredType::kFloat32, 0),
                       stored_table("b", 5, StoredType::kInt8, 0),
                       stored_table("c", 7, StoredType::kBfloat16, 0),
                       stored_table("d", 1, StoredType::kFloat16, 0)});
  for (size_t t = 0; t < 4; ++t) {
    put_rows(reader, t, -300, 300, t + 1);
    std::vector<int64_t> keys = {INT64_MIN, 300, INT64_MAX};
    for (int64_t key = -300; key < 300; ++key) keys.push_back(key);
    const Answer answer(reader, t, keys, never());
    CHECK(answer.failure.code == Code::kOk);
    for (size_t i = 0; i < 3; ++i) REQUIRE(answer.states[i] == ReadState::kUnknown);
    for (size_t i = 3; i < keys.size(); ++i) {
      REQUIRE(answer.states[i] == ReadState::kFound);
      REQUIRE(answer.versions[i] == t + 1);
      REQUIRE(answer.row(i) == stored_row(reader.tables()[t], t, keys[i], t + 1));
    }
    CHECK(reader.rows(t) == 600);
  }
}

TEST_CASE("memory reader: the highest version wins, and tombstones are unknown with theirs") {
  MemoryReader reader({stored_table("a", 2, StoredType::kFloat32, 0)});
  const StoredTable& table = reader.tables()[0];
  put_rows(reader, 0, 7, 8, 5);
  put_rows(reader, 0, 7, 8, 4);
  CHECK(Answer(reader, 0, {7}, never()).row(0) == stored_row(table, 0, 7, 5));
  const int64_t key = 7;
  RowVersion version = 6 | kTombstone;
  reader.put(0, &key, 1, nullptr, &version);
  const Answer gone(reader, 0, {7}, never());
  CHECK(gone.states[0] == ReadState::kUnknown);
  CHECK(gone.versions[0] == version);
  CHECK(reader.rows(0) == 0);
  put_rows(reader, 0, 7, 8, 5);
  CHECK(reader.rows(0) == 0);
  put_rows(reader, 0, 7, 8, 7);
  CHECK(Answer(reader, 0, {7}, never()).row(0) == stored_row(table, 0, 7, 7));
  CHECK(reader.rows(0) == 1);
}

TEST_CASE("memory reader: a deadline that has passed fails the keys, and wrong numbers are named") {
  MemoryReader reader({stored_table("a", 2, StoredType::kFloat32, 0)});
  put_rows(reader, 0, 0, 10, 1);
  const Answer late(reader, 0, {1, 2}, in_milliseconds(-1));
  CHECK(late.failure.code == Code::kUnavailable);
  CHECK(late.states == std::vector<ReadState>(2, ReadState::kFailed));
  CHECK(Answer(reader, 0, {}, never()).failure.code == Code::kOk);
  CHECK(error_code([&] { reader.rows(1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { MemoryReader({stored_table("a", 0, StoredType::kFloat32, 0)}); }) ==
        Code::kInvalidArgument);
}

TEST_CASE("memory reader: rows are whole while others are put in and the table grows") {
  MemoryReader reader({stored_table("a", 9, StoredType::kFloat32, 0)});
  const StoredTable& table = reader.tables()[0];
  put_rows(reader, 0, 0, 100, 1);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t key = 100; key < 20000; ++key) {
      put_rows(reader, 0, key, key + 1, 1);
      put_rows(reader, 0, key % 100, key % 100 + 1, static_cast<RowVersion>(key));
    }
    stop = true;
  });
  bool whole = true;
  while (!stop) {
    const Answer answer(reader, 0, {3, 50, 99}, never());
    for (size_t i = 0; i < 3; ++i) {
      whole = whole && answer.row(i) == stored_row(table, 0, answer.keys[i], answer.versions[i]);
    }
  }
  writer.join();
  CHECK(whole);
}

}  // namespace hotrow
