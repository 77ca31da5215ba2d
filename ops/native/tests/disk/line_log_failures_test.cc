// A log of lines when the disk is full, fails or returns wrong data, and after failed requests.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/disk/line_log_rows.h"
#include "tests/error_code.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

// The descriptor of the only file that this process has open below a directory.
int file_below(const std::string& directory) {
  const std::string whole = std::filesystem::canonical(directory).string();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!error && target.rfind(whole, 0) == 0) return std::stoi(entry.path().filename());
  }
  return -1;
}

}  // namespace

TEST_CASE("line log: a full disk is an error that names the directory, and every line is kept") {
  const TemporaryDirectory directory;
  LineLog::Options options = tiny();
  SUBCASE("direct") {}
  SUBCASE("through the page cache") { options.direct = false; }
  LineLog log(directory / "", 512, 1, options);
  Model model;
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  // In the middle of a segment.
  const rlimit small{49 * 4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string message;
  int failures = 0, wrong_codes = 0;
  uint32_t place = 0;
  for (; failures < 5 && place < 10000; ++place) {
    try {
      write(log, {0, place}, 1);
      model[{0, place}] = 1;
    } catch (const Error& error) {
      ++failures;
      wrong_codes += error.code() != Code::kResourceExhausted;
      message = error.what();
    }
  }
  const size_t wrong = wrong_rows(log, model);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_action);
  CHECK(failures == 5);
  CHECK(wrong_codes == 0);
  CHECK(wrong == 0);
  CHECK(message.find(directory / "") != std::string::npos);
  CHECK(message.find("8192 bytes") != std::string::npos);
  // There is room again: at most the earlier error is still reported.
  for (uint32_t i = 0; i < 3000; ++i) {
    if (error_code([&] { write(log, {0, i}, 2); }) != Code::kOk) {
      REQUIRE(i < 2);
      write(log, {0, i}, 2);
    }
    model[{0, i}] = 2;
  }
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE("line log: a disk that fails now and then loses nothing") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 512, 1, tiny());
  Model model;
  std::mt19937 random(6);
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit nothing{0, before.rlim_max};
  size_t failures = 0, limits = 0;
  const auto try_write = [&](Row row, uint32_t version) {
    const Code code = error_code([&] { write(log, row, version); });
    if (code == Code::kOk) model[row] = version;
    failures += code != Code::kOk;
    return code == Code::kOk;
  };
  // The writing thread and the cleaner may hit the error at any time.
  for (uint32_t version = 0; version < 20000; ++version) {
    if (version % 500 == 0) limits += ::setrlimit(RLIMIT_FSIZE, &nothing) != 0;
    if (version % 500 == 100) limits += ::setrlimit(RLIMIT_FSIZE, &before) != 0;
    try_write({0, static_cast<uint32_t>(random() % 700)}, version);
  }
  CHECK(failures > 100);
  // Only the cleaner: it has much work after a hold, and no other thread writes.
  for (uint32_t round = 0; round < 5; ++round) {
    const LineLog::Hold hold = log.hold();
    for (uint32_t i = 0; i < 3000; ++i) {
      const Row row{0, static_cast<uint32_t>(random() % 700)};
      while (!try_write(row, i)) continue;
    }
    while (log.statistics().segments_waiting > 0) std::this_thread::yield();
    limits += ::setrlimit(RLIMIT_FSIZE, &nothing) != 0;
    log.release(hold);
    for (const size_t until = failures + 2; failures < until;) try_write({0, 700}, round);
    limits += ::setrlimit(RLIMIT_FSIZE, &before) != 0;
  }
  std::signal(SIGXFSZ, old_action);
  CHECK(limits == 0);
  for (uint32_t i = 0; i < 5000; ++i) {
    const Row row{0, static_cast<uint32_t>(random() % 700)};
    while (!try_write(row, i)) continue;
  }
  CHECK(log.statistics().segments_cleaned > 300);
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE(
    "line log: a file that may hold no more lines cleans itself, and fails when that is all") {
  const TemporaryDirectory directory;
  LineLog::Options options = tiny();
  options.line_limit = 20 * tiny_lines(512);
  LineLog log(directory / "", 512, 1, options);
  Model model;
  const uint32_t few = 10 * tiny_lines(512);
  for (uint32_t i = 0; i < 20 * few; ++i) {
    write(log, {0, i * 7 % few}, i);
    model[{0, i * 7 % few}] = i;
  }
  CHECK(wrong_rows(log, model) == 0);
  std::string message;
  for (uint32_t place = few; place < 30 * tiny_lines(512); ++place) {
    try {
      write(log, {0, place}, 1);
      model[{0, place}] = 1;
    } catch (const Error& error) {
      CHECK(error.code() == Code::kResourceExhausted);
      message = error.what();
      break;
    }
  }
  CHECK(message.find("may hold 300 lines of 512 bytes") != std::string::npos);
  CHECK(wrong_rows(log, model) == 0);
  for (uint32_t place = 0; place < few; ++place) {
    log.forget(0, place);
    model.erase({0, place});
  }
  for (uint32_t i = 0; i < 20 * few; ++i) {
    write(log, {0, i % (few / 2)}, i);
    model[{0, i % (few / 2)}] = i;
  }
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE("line log: bad arguments, missing directories and missing rows are named") {
  const TemporaryDirectory directory;
  CHECK(error_code([&] { LineLog(directory / "none", 64, 1); }) == Code::kNotFound);
  CHECK(error_code([&] { LineLog(directory / "", 0, 1); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { LineLog(directory / "", 66, 1); }) == Code::kInvalidArgument);
  LineLog log(directory / "", 64, 1, tiny());
  Line line(64);
  for (uint32_t place = 0; place < 500; ++place) write(log, {0, place}, 1);
  std::vector<LineLog::Read> reads(500, {0, 3, line.data()});
  reads[400].place = 1000;
  CHECK(error_code([&] { log.read(reads.data(), 500); }) == Code::kNotFound);
  CHECK(error_code([&] { log.read(reads.data(), 400); }) == Code::kOk);
  log.read(nullptr, 0);
  log.forget(0, 100000);
  CHECK(!log.has(0, 100000));
}

TEST_CASE("line log: nothing stays pinned after reads, whether they fail or not") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 64, 1, tiny());
  constexpr uint32_t kRows = 1000;
  std::vector<LineLog::Read> reads;
  Line line(64);
  for (uint32_t place = 0; place < kRows; ++place) reads.push_back({0, place, line.data()});
  bool fails = true, merged = true;
  SUBCASE("whole") { fails = false; }
  SUBCASE("a row is missing") { reads.push_back({0, kRows, line.data()}); }
  SUBCASE("a row is missing at random") {
    std::shuffle(reads.begin(), reads.end(), std::mt19937(1));
    reads.push_back({0, kRows, line.data()});
  }
  SUBCASE("progress fails") { merged = false; }
  SUBCASE("progress fails at random") {
    merged = false;
    std::shuffle(reads.begin(), reads.end(), std::mt19937(1));
  }
  for (uint32_t round = 0; round < 60; ++round) {
    for (uint32_t place = 0; place < kRows; ++place) write(log, {0, place}, round);
    const Code code = error_code([&] {
      log.read(reads.data(), reads.size(), [&](size_t n) {
        if (!merged && n > 50) throw Error(Code::kInternal, "enough");
      });
    });
    REQUIRE((code != Code::kOk) == fails);
  }
  // The lines take 18 segments; without unpinning, each round would pin as many.
  CHECK(log.statistics().segments < 80);
}

TEST_CASE("line log: a file that was cut or damaged is data loss, never wrong rows or a hang") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 512, 1, tiny());
  Model model;
  for (uint32_t place = 0; place < 700; ++place) {
    write(log, {0, place}, 1);
    model[{0, place}] = 1;
  }
  CHECK(wrong_rows(log, model) == 0);
  const int file = file_below(directory / "");
  REQUIRE(file >= 0);
  SUBCASE("cut") {
    REQUIRE(::ftruncate(file, 4096) == 0);
    CHECK(error_code([&] { wrong_rows(log, model); }) == Code::kDataLoss);
    CHECK(error_code([&] { wrong_rows(log, {{{0, 0}, 1}, {{0, 699}, 1}}); }) == Code::kOk);
  }
  SUBCASE("owners lost") {
    const AnonymousArray<std::byte> zeros(4096);
    for (off_t segment = 0; segment < 40; ++segment) {
      // The end of the segment, behind its 15 lines.
      REQUIRE(::pwrite(file, zeros.data(), 512, segment * 8192 + 15 * 512) == 512);
    }
  }
  size_t expected = 5;
  SUBCASE("the owners of one segment lost: reported once, and cleaning goes on") {
    expected = 1;
    const AnonymousArray<std::byte> zeros(4096);
    REQUIRE(::pwrite(file, zeros.data(), 512, 3 * 8192 + 15 * 512) == 512);
  }
  size_t losses = 0;
  std::mt19937 random(5);
  for (uint32_t i = 0; i < 20000 && losses < 5; ++i) {
    const Row row{0, static_cast<uint32_t>(random() % 700)};
    const Code code = error_code([&] { write(log, row, i); });
    if (code != Code::kOk) REQUIRE(code == Code::kDataLoss);
    losses += code == Code::kDataLoss;
  }
  CHECK(losses == expected);
}

}  // namespace hotrow
