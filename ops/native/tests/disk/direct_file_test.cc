#include "core/disk/direct_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "core/base/anonymous_array.h"
#include "tests/error_code.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

constexpr size_t kPage = DirectFile::kPage;
constexpr size_t kPages = 300;

// Pages whose words are their number.
AnonymousArray<std::byte> pages() {
  AnonymousArray<std::byte> data(kPages * kPage);
  for (size_t i = 0; i < kPages * kPage; i += 4) {
    const auto number = static_cast<uint32_t>(i / kPage);
    std::memcpy(data.data() + i, &number, 4);
  }
  return data;
}

}  // namespace

TEST_CASE("direct file: many reads in flight each give their own bytes") {
  const TemporaryDirectory directory;
  std::string where = directory / "";
  bool direct = true, asynchronous = true;
  SUBCASE("asynchronous") {}
  SUBCASE("one after the other") { asynchronous = false; }
  SUBCASE("through the page cache") { direct = false; }
  SUBCASE("in memory") {
    if (std::filesystem::exists("/dev/shm")) where = "/dev/shm";
  }
  DirectFile file(where, direct);
  CHECK((direct || !file.direct()));
  REQUIRE(file.alignment() <= kPage);
  CHECK(std::filesystem::is_empty(directory / ""));
  const AnonymousArray<std::byte> data = pages();
  file.write(0, data.data(), data.bytes());
  AnonymousArray<std::byte> whole(kPages * kPage);
  file.read(0, whole.data(), whole.bytes());
  CHECK(std::memcmp(whole.data(), data.data(), data.bytes()) == 0);

  constexpr size_t kDepth = 16;
  ReadQueue queue(file, kDepth, asynchronous);
  AnonymousArray<std::byte> room(kDepth * kPage);
  std::vector<size_t> page_of(kDepth), free;
  for (size_t slot = 0; slot < kDepth; ++slot) free.push_back(slot);
  std::mt19937 random(1);
  size_t done = 0, wrong = 0;
  while (done < 2000) {
    while (!free.empty()) {
      const size_t slot = free.back();
      free.pop_back();
      page_of[slot] = random() % kPages;
      // A part of the page, as small as it may be.
      const size_t unit = std::max<size_t>(file.alignment(), 4);
      const size_t offset = random() % (kPage / unit) * unit;
      queue.add(slot, page_of[slot] * kPage + offset, room.data() + slot * kPage, unit);
    }
    for (const ReadQueue::Done& one : queue.wait(1 + random() % kDepth)) {
      uint32_t number;
      std::memcpy(&number, room.data() + one.slot * kPage, 4);
      wrong += number != page_of[one.slot] || one.result <= 0;
      free.push_back(one.slot);
      ++done;
    }
    REQUIRE(queue.pending() + free.size() == kDepth);
  }
  CHECK(wrong == 0);
}

TEST_CASE("direct file: a read past the end is an error that says so") {
  const TemporaryDirectory directory;
  DirectFile file(directory / "");
  const AnonymousArray<std::byte> data = pages();
  file.write(0, data.data(), 2 * kPage);
  AnonymousArray<std::byte> room(4 * kPage);
  CHECK(error_code([&] { file.read(kPage, room.data(), 2 * kPage); }) == Code::kDataLoss);
  CHECK(error_code([&] { file.read(8 * kPage, room.data(), kPage); }) == Code::kDataLoss);
  ReadQueue queue(file, 2, true);
  queue.add(1, kPage, room.data(), 2 * kPage);
  const std::vector<ReadQueue::Done> done = queue.wait(1);
  REQUIRE(done.size() == 1);
  CHECK(done[0].slot == 1);
  CHECK(done[0].result == kPage);
  file.clear();
  CHECK(error_code([&] { file.read(0, room.data(), kPage); }) == Code::kDataLoss);
}

TEST_CASE("direct file: a directory that is not there is named") {
  const TemporaryDirectory directory;
  const std::string missing = directory / "missing";
  for (const bool direct : {true, false}) {
    std::string message;
    try {
      const DirectFile file(missing, direct);
    } catch (const Error& error) {
      CHECK(error.code() == Code::kNotFound);
      message = error.what();
    }
    CHECK(message.find(missing) != std::string::npos);
  }
}

}  // namespace hotrow
