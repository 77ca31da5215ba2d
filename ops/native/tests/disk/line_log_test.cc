#include "core/disk/line_log.h"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/disk/line_log_rows.h"
#include "tests/error_code.h"
#include "tests/temporary_directory.h"
#include "tests/test_size.h"

namespace hotrow {
namespace {

// Old versions that a snapshot needs: of every row, or of some hundreds.
struct Held {
  std::vector<std::pair<Row, uint32_t>> rows;
  std::vector<LineLog::Location> locations;
  LineLog::Hold hold;

  Held(LineLog& log, const Model& model, size_t most = SIZE_MAX) : hold(log.hold()) {
    const size_t step = 1 + model.size() / most;
    size_t i = 0;
    for (const auto& row : model) {
      if (i++ % step == 0) rows.push_back(row);
    }
    for (const auto& [row, version] : rows) {
      locations.push_back(log.location(row.first, row.second));
    }
  }
  size_t wrong(const LineLog& log) const {
    std::vector<Line> lines(rows.size(), Line(log.line_bytes()));
    std::vector<LineLog::ReadAt> reads;
    for (size_t i = 0; i < rows.size(); ++i) reads.push_back({locations[i], lines[i].data()});
    log.read_at(reads.data(), reads.size());
    size_t wrong = 0;
    for (size_t i = 0; i < rows.size(); ++i)
      wrong += !holds(lines[i], rows[i].first, rows[i].second);
    return wrong;
  }
};

class RandomSession {
 public:
  RandomSession(LineLog& log, uint32_t rows, uint32_t seed)
      : log_(log), rows_(rows), random_(seed) {}

  void run(size_t operations) {
    for (size_t i = 0; i < operations; ++i) operate();
    while (!held_.empty()) release_some();
    REQUIRE(wrong_rows(log_, model_) == 0);
    REQUIRE(log_.statistics().lines == model_.size());
  }

 private:
  Row row() {
    const auto number = static_cast<uint32_t>(random_() % rows_);
    return {number % 3, number / 3};
  }
  void operate() {
    const uint32_t choice = random_() % 1000;
    if (choice < 700) {
      for (uint32_t n = random_() % 50; n > 0; --n) {
        const Row one = row();
        write(log_, one, ++version_);
        model_[one] = version_;
      }
    } else if (choice < 850) {
      read_some();
    } else if (choice < 950) {
      const Row one = row();
      log_.forget(one.first, one.second);
      model_.erase(one);
      REQUIRE(!log_.has(one.first, one.second));
    } else if (choice < 965) {
      if (held_.size() == 3 || model_.empty()) return;
      held_.emplace_back(log_, model_, 300);
    } else if (choice < 990) {
      for (const Held& held : held_) REQUIRE(held.wrong(log_) == 0);
      if (choice < 980 || held_.empty()) return;
      release_some();
    } else if (choice < 991) {
      if (!held_.empty()) {
        REQUIRE(error_code([&] { log_.clear(); }) == Code::kFailedPrecondition);
        return;
      }
      log_.clear();
      model_.clear();
    }
  }
  // Releases any of the holds.
  void release_some() {
    const auto held = held_.begin() + static_cast<ptrdiff_t>(random_() % held_.size());
    REQUIRE(held->wrong(log_) == 0);
    log_.release(held->hold);
    held_.erase(held);
  }
  void read_some() {
    std::vector<Row> rows;
    for (uint32_t n = random_() % 200; n > 0; --n) {
      const Row one = row();
      if (model_.count(one) != 0) rows.push_back(one);
    }
    std::vector<Line> lines(rows.size(), Line(log_.line_bytes()));
    std::vector<LineLog::Read> reads;
    for (size_t i = 0; i < rows.size(); ++i) {
      reads.push_back({rows[i].first, rows[i].second, lines[i].data()});
    }
    size_t complete = 0, early = 0;
    log_.read(reads.data(), reads.size(), [&](size_t n) {
      REQUIRE(n > complete);
      for (; complete < n; ++complete) {
        early += !holds(lines[complete], rows[complete], model_[rows[complete]]);
      }
    });
    REQUIRE(complete == rows.size());
    REQUIRE(early == 0);
  }

  LineLog& log_;
  uint32_t rows_;
  std::mt19937 random_;
  Model model_;
  uint32_t version_ = 0;
  std::vector<Held> held_;
};

}  // namespace

TEST_CASE("line log: random writes, reads, holds and cleaning agree with a map at any line size") {
  const TemporaryDirectory directory;
  std::string where = directory / "";
  LineLog::Options options = tiny();
  SUBCASE("direct, asynchronous") {}
  SUBCASE("direct, one read after the other") { options.asynchronous = false; }
  SUBCASE("through the page cache") { options.direct = false; }
  SUBCASE("in memory") {
    if (std::filesystem::exists("/dev/shm")) where = "/dev/shm";
  }
  uint64_t cleaned = 0;
  uint32_t seed = 1;
  size_t n = 0;
  for (const size_t line_bytes : {4, 64, 100, 512, 520, 4096, 5000}) {
    if (kLess && n++ % 2 != 0) continue;
    CAPTURE(line_bytes);
    LineLog log(where, line_bytes, 3, options);
    const uint32_t rows = 40 * tiny_lines(line_bytes);
    RandomSession(log, rows, seed++).run((kLess ? 50 : 150) * tiny_lines(line_bytes) / 10);
    cleaned += log.statistics().segments_cleaned;
  }
  CHECK(cleaned > (kLess ? 20 : 200));  // by a background thread: fewer on a busy machine
  CHECK(std::filesystem::is_empty(directory / ""));
}

TEST_CASE("line log: writers, readers and the cleaner at once") {
  const TemporaryDirectory directory;
  LineLog::Options options = tiny();
  int readers = 2;
  SUBCASE("direct") {}
  // Reads take a microsecond, so that more of them meet the cleaner.
  SUBCASE("through the page cache") {
    options.direct = false;
    readers = 8;
  }
  LineLog log(directory / "", 100, 4, options);
  constexpr uint32_t kRows = 400;
  // Rows of the last partition are never written again, but the cleaner moves them all the time:
  // they lie among rows that are rewritten.
  Model still;
  for (uint32_t place = 0; place < kRows; ++place) {
    for (uint32_t p = 0; p < 4; ++p) write(log, {p, place}, 0);
    still[{3, place}] = 0;
  }
  std::atomic<bool> stop{false};
  std::atomic<size_t> wrong{0}, rounds{0};
  std::vector<std::thread> threads;
  for (uint32_t p = 0; p < 3; ++p) {
    threads.emplace_back([&, p] {
      std::mt19937 random(p);
      Model own;
      for (uint32_t version = 1; !stop; ++version) {
        for (int i = 0; i < 300; ++i) {
          const Row row{p, static_cast<uint32_t>(random() % kRows)};
          write(log, row, version);
          own[row] = version;
        }
        if (version % 4 == 0) wrong += wrong_rows(log, own);
        ++rounds;
      }
    });
  }
  for (int t = 0; t < readers; ++t) {
    threads.emplace_back([&] {
      while (!stop) wrong += wrong_rows(log, still);
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      Held held(log, still);
      for (int i = 0; i < 3; ++i) wrong += held.wrong(log);
      log.release(held.hold);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });
  while (log.statistics().segments_cleaned < (kLess ? 800u : 3000u)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(wrong_rows(log, still) == 0);
  CHECK(log.statistics().lines == 4 * kRows);
}

TEST_CASE("line log: what is held stays readable, and its space is used again after the release") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 512, 1, tiny());
  Model model;
  uint32_t version = 0;
  const auto write_all = [&](int times) {
    for (; times > 0; --times) {
      ++version;
      for (uint32_t place = 0; place < 1000; ++place) {
        write(log, {0, place}, version);
        model[{0, place}] = version;
      }
    }
  };
  write_all(1);
  const Held first(log, model);
  write_all(4);
  const Held second(log, model);
  for (uint32_t place = 0; place < 1000; place += 2) log.forget(0, place);
  CHECK(log.location(0, 0) == LineLog::kNowhere);
  write_all(4);
  CHECK(first.wrong(log) == 0);
  CHECK(second.wrong(log) == 0);
  const LineLog::Statistics held = log.statistics();
  // Five versions are held; of the later four, the last one stays.
  CHECK(held.file_bytes < 8 * held.live_bytes);
  log.release(first.hold);
  CHECK(second.wrong(log) == 0);
  log.release(second.hold);
  write_all(20);
  CHECK(log.statistics().file_bytes == held.file_bytes);
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE("line log: what a short hold kept beside a long one is freed when it is released") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 64, 1, tiny());
  constexpr uint32_t kRows = 1000;
  Model model;
  uint32_t version = 0;
  const auto write_all = [&](int times) {
    for (; times > 0; --times) {
      ++version;
      for (uint32_t place = 0; place < kRows; ++place) {
        write(log, {0, place}, version);
        model[{0, place}] = version;
      }
    }
  };
  write_all(1);
  const Held lasting(log, model);
  for (int round = 0; round < 60; ++round) {
    write_all(1);
    const Held brief(log, model);
    write_all(1);
    CHECK(brief.wrong(log) == 0);
    log.release(brief.hold);
  }
  CHECK(lasting.wrong(log) == 0);
  // The version that is held and what cleaning leaves of the others, not 120 versions.
  CHECK(log.statistics().file_bytes < 10 * log.statistics().live_bytes);
  log.release(lasting.hold);
  write_all(3);
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE("line log: the file stays below twice its lines however often they are written") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 256, 2, tiny());
  std::mt19937 random(3);
  for (uint32_t i = 0; i < 60000; ++i) {
    write(log, {i % 2, static_cast<uint32_t>(random() % 3000)}, i);
  }
  const LineLog::Statistics facts = log.statistics();
  CHECK(facts.lines > 5900);
  CHECK(facts.file_bytes < 2 * facts.live_bytes);
  CHECK(facts.segments_cleaned > 1000);
  CHECK(facts.lines_written == 60000);
  CHECK(facts.bytes_written >= 60000 * 256);
}

TEST_CASE(
    "line log: after many rows were forgotten, writers use their space and the file does not "
    "grow") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 256, 1, tiny());
  constexpr uint32_t kRows = 20000;
  for (uint32_t place = 0; place < kRows; ++place) write(log, {0, place}, 0);
  Model model;
  for (uint32_t place = 0; place < kRows; ++place) {
    if (place % 4 == 0) {
      model[{0, place}] = 0;
    } else {
      log.forget(0, place);
    }
  }
  const LineLog::Statistics before = log.statistics();
  for (uint32_t place = 1; place < 4000; place += 4) {
    write(log, {0, place}, 1);
    model[{0, place}] = 1;
  }
  const LineLog::Statistics after = log.statistics();
  // The segments that the cleaner itself needs to start.
  CHECK(after.segments <= before.segments + 4);
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE("line log: a row that is written over and over takes a few segments") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 512, 1, tiny());
  for (uint32_t version = 0; version < 5000; ++version) write(log, {0, 7}, version);
  const LineLog::Statistics facts = log.statistics();
  CHECK(facts.segments < 20);
  CHECK(facts.segments_cleaned == 0);
  CHECK(wrong_rows(log, {{{0, 7}, 4999}}) == 0);
}

TEST_CASE("line log: writers that take their time leave the file at 1.55 times its lines") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 64, 1, tiny());
  constexpr uint32_t kRows = 6000;
  std::mt19937 random(4);
  for (uint32_t i = 0; i < 10 * kRows; ++i) {
    write(log, {0, static_cast<uint32_t>(random() % kRows)}, i);
    // Until the cleaner has done the work that it owes, or stops because there is little garbage.
    uint64_t cleaned = 0;
    for (int idle = 0; i % 100 == 0 && idle < 5 && log.statistics().lines_owed > 0; ++idle) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (log.statistics().segments_cleaned > cleaned) idle = 0;
      cleaned = log.statistics().segments_cleaned;
    }
  }
  // 64 of each 73 bytes are lines, and six segments more are used.
  const LineLog::Statistics facts = log.statistics();
  CHECK(facts.file_bytes > facts.live_bytes * 3 / 2);
  CHECK(facts.file_bytes < facts.live_bytes * 2);
}

TEST_CASE("line log: lines that follow each other on the disk are read together") {
  const TemporaryDirectory directory;
  LineLog::Options options;
  options.buffer_bytes = 2 << 20;
  LineLog log(directory / "", 512, 1, options);
  constexpr uint32_t kRows = 20000;
  Model model;
  for (uint32_t place = 0; place < kRows; ++place) {
    write(log, {0, place}, 1);
    model[{0, place}] = 1;
  }
  CHECK(wrong_rows(log, model) == 0);
  const LineLog::Statistics facts = log.statistics();
  CHECK(facts.lines_read == kRows);
  CHECK(facts.reads < kRows * 512 / (128 << 10));
  CHECK(facts.bytes_read < kRows * 512 * 5 / 4);
}

TEST_CASE("line log: memory is four bytes a row and the buffers") {
  const TemporaryDirectory directory;
  LineLog::Options options;
  options.buffer_bytes = 2 << 20;
  LineLog log(directory / "", 4, 2, options);
  const std::byte line[4] = {};
  for (uint32_t place = 0; place < 1000000; ++place) {
    log.write(0, place, line);
    log.write(1, place, line);
  }
  CHECK(log.bytes() < 2000000 * 5 + (4 << 20));
  CHECK(log.bytes() > 2000000 * 4);
  log.clear();
  CHECK(log.bytes() < 5 << 20);
  CHECK(log.statistics().file_bytes == 0);
}

TEST_CASE("line log: while lines are held, cleaning goes on and the file stays bounded") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 512, 1, tiny());
  constexpr uint32_t kRows = 3000;
  Model model;
  uint32_t version = 0;
  std::mt19937 random(3);
  const auto write_some = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t place = static_cast<uint32_t>(random() % kRows);
      write(log, {0, place}, ++version);
      model[{0, place}] = version;
    }
  };
  for (uint32_t place = 0; place < kRows; ++place) {
    write(log, {0, place}, ++version);
    model[{0, place}] = version;
  }
  write_some(4 * kRows);
  const Held held(log, model);
  const uint64_t cleaned = log.statistics().segments_cleaned;
  write_some(40 * kRows);
  CHECK(held.wrong(log) == 0);
  CHECK(log.statistics().segments_cleaned > cleaned + 100);
  // 1.8 times the lines at the hold, and as much for those written since.
  CHECK(log.statistics().file_bytes < 4 * kRows * 560);
  CHECK(wrong_rows(log, model) == 0);
  log.release(held.hold);
  write_some(10 * kRows);
  CHECK(wrong_rows(log, model) == 0);
}

TEST_CASE("line log: holds that begin and end while a segment is cleaned damage nothing") {
  const TemporaryDirectory directory;
  LineLog log(directory / "", 64, 1, tiny());
  Model model;
  std::atomic<bool> done{false};
  std::thread holder([&] {
    while (!done) {
      const LineLog::Hold hold = log.hold();
      std::this_thread::yield();
      log.release(hold);
      std::this_thread::yield();
    }
  });
  std::mt19937 random(11);
  size_t errors = 0;
  for (uint32_t i = 0; i < 300'000; ++i) {
    const Row row{0, static_cast<uint32_t>(random() % 3000)};
    if (error_code([&] { write(log, row, i); }) == Code::kOk) {
      model[row] = i;
    } else {
      ++errors;
    }
  }
  done = true;
  holder.join();
  CHECK(errors == 0);
  CHECK(wrong_rows(log, model) == 0);
  CHECK(log.statistics().segments_cleaned > 100);
}

TEST_CASE("line log: a file at its limit holds nearly as many rows as lines") {
  const TemporaryDirectory directory;
  LineLog::Options options = tiny();
  options.line_limit = 400 * tiny_lines(512);
  LineLog log(directory / "", 512, 1, options);
  Model model;
  uint32_t place = 0;
  const auto fill_up = [&] {
    for (;; ++place) {
      write(log, {0, place}, place);
      model[{0, place}] = place;
      // Old versions, as training leaves them.
      if (place % 4 == 0) {
        write(log, {0, place / 2}, place);
        model[{0, place / 2}] = place;
      }
    }
  };
  CHECK(error_code(fill_up) == Code::kResourceExhausted);
  CHECK(model.size() > options.line_limit * 95 / 100);
  CHECK(wrong_rows(log, model) == 0);
}

}  // namespace hotrow
