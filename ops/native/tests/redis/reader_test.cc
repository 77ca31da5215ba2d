#include "core/redis/reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/store/pages.h"
#include "tests/redis/fake_redis.h"

namespace hotrow {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Command = std::vector<std::string>;

constexpr size_t kShards = 4, kRowBytes = 8;
constexpr uint64_t kPages = 20;

StoredGeneration generation() {
  StoredGeneration made;
  made.name = "g";
  made.number = 1;
  made.shards = kShards;
  made.tables.resize(1);
  made.tables[0].width = 2;
  made.tables[0].pages = kPages;
  return made;
}

// Keys 0 to 99, each with itself as its row.
std::map<std::string, std::string> stored_pages() {
  std::map<std::string, std::string> pages;
  const StoreNames names(kShards, 1);
  for (int64_t key = 0; key < 100; ++key) {
    char name[StoreNames::kLongestPage];
    const size_t length = names.page(store_shard_of(key, kShards), 0, page_of(key, kPages), name);
    std::string& page = pages[std::string(name, length)];
    const RowVersion version = 5;
    for (const void* part : {static_cast<const void*>(&key), static_cast<const void*>(&version),
                             static_cast<const void*>(&key)}) {
      page.append(static_cast<const char*>(part), 8);
    }
  }
  return pages;
}

std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

// As Redis answers.
std::string honest(const Command& command) {
  static const auto pages = stored_pages();
  if (command[0] == "EXISTS") return ":1\r\n";
  if (command[0] != "MGET") return "+OK\r\n";
  std::string answer = "*" + std::to_string(command.size() - 1) + "\r\n";
  for (size_t i = 1; i < command.size(); ++i) {
    const auto found = pages.find(command[i]);
    answer += found == pages.end() ? "$-1\r\n" : bulk(found->second);
  }
  return answer;
}

struct Read {
  std::vector<int64_t> keys, rows;
  std::vector<ReadState> states;
  ReadFailure failure;
  milliseconds spent;

  size_t count(ReadState state) const {
    return static_cast<size_t>(std::count(states.begin(), states.end(), state));
  }
  // Every row that was found is the right one.
  bool is_right() const {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (states[i] == ReadState::kFound && (rows[i] != keys[i] || keys[i] >= 100)) return false;
    }
    return true;
  }
};

// Reads keys 50 to 149.
Read read(const RedisReader& reader, int timeout_ms) {
  Read made;
  for (int64_t key = 50; key < 150; ++key) made.keys.push_back(key);
  made.rows.resize(100);
  made.states.resize(100);
  const ReadRequest request = {0,       made.keys.data(),
                               100,     reinterpret_cast<std::byte*>(made.rows.data()),
                               nullptr, made.states.data()};
  const auto start = Clock::now();
  made.failure = reader.read(&request, 1, start + milliseconds(timeout_ms));
  made.spent = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  return made;
}

Read read_from(FakeRedis::Answer answer, int timeout_ms, size_t piece = 1 << 20) {
  FakeRedis node(std::move(answer), piece);
  return read(RedisReader(generation(), node.topology(), {}), timeout_ms);
}

}  // namespace

TEST_CASE("redis_reader: rows come however the answer is cut") {
  for (const size_t piece : {1, 2, 7, 100, 4000}) {
    const Read got = read_from(honest, 10000, piece);
    CHECK(got.failure.message == "");
    CHECK(got.count(ReadState::kFound) == 50);
    CHECK(got.count(ReadState::kUnknown) == 50);
    CHECK(got.is_right());
  }
}

TEST_CASE("redis_reader: reads that follow each other share a connection") {
  FakeRedis node(honest);
  const RedisReader reader(generation(), node.topology(), {});
  for (int i = 0; i < 20; ++i) CHECK(read(reader, 10000).count(ReadState::kFound) == 50);
  CHECK(node.connections() == 1);
}

TEST_CASE("redis_reader: answers that no command gets fail all keys") {
  const std::string answers[] = {
      "$3\r\nabc\r\n", ":1\r\n",        "$-1\r\n",          "*0\r\n",
      "*1\r\n$-1\r\n", "*-1\r\n",       "+OK\r\n",          "garbage\r\n",
      "*77\r\n",       "*1\r\n*0\r\n",  "-ERR unknown\r\n", "*9999999999999\r\n",
      "\r\n",          "*78\r\n:1\r\n", "*78\r\n-ERR\r\n",  "*78\r\n*1\r\n:1\r\n",
  };
  for (const std::string& answer : answers) {
    CAPTURE(answer);
    const Read got =
        read_from([&](const Command& c) { return c[0] == "MGET" ? answer : honest(c); }, 200);
    CHECK(got.count(ReadState::kFailed) == 100);
    CHECK(got.failure.code == Code::kUnavailable);
    CHECK(got.failure.message.find("Redis node unix:") == 0);
  }
}

TEST_CASE("redis_reader: damaged answers do no harm") {
  std::mt19937 random(5);
  size_t failed = 0;
  for (int i = 0; i < 200; ++i) {
    const auto damaged = [&](const Command& command) {
      std::string answer = honest(command);
      const size_t at = random() % answer.size();
      switch (random() % 3) {
        case 0:
          answer[at] = static_cast<char>(random());
          break;
        case 1:
          answer.erase(at, 1 + random() % 20);
          break;
        default:
          answer.insert(at, std::string(1 + random() % 20, "0*$\r\n"[random() % 5]));
      }
      return answer;
    };
    const Read got = read_from(damaged, 30);
    CHECK(got.spent.count() < 1000);
    failed += got.count(ReadState::kFailed) != 0;
  }
  CHECK(failed > 50);
}

TEST_CASE("redis_reader: a connection that is lost is made once more, and twice is enough") {
  std::atomic<int> calls{0};
  const auto closes_first = [&](const Command& command) {
    return calls++ == 0 ? "" : honest(command);
  };
  CHECK(read_from(closes_first, 10000).count(ReadState::kFound) == 50);
  FakeRedis node([](const Command&) { return ""; });
  const RedisReader reader(generation(), node.topology(), {});
  const Read got = read(reader, 10000);
  CHECK(got.count(ReadState::kFailed) == 100);
  CHECK(got.failure.code == Code::kUnavailable);
  CHECK(got.spent.count() < 2000);
  CHECK(node.connections() == 2);
}

TEST_CASE("redis_reader: a part of an answer and then none keeps the deadline") {
  const auto cut = [](const Command& command) { return honest(command).substr(0, 500); };
  const Read got = read_from(cut, 50);
  CHECK(got.failure.code == Code::kUnavailable);
  CHECK(got.spent.count() >= 49);
  CHECK(got.spent.count() < 500);
  CHECK(got.count(ReadState::kFailed) > 0);
  CHECK(got.is_right());
}

TEST_CASE("redis_reader: a missing page is believed only beside its marker") {
  const auto without = [](const Command& c) { return c[0] == "EXISTS" ? ":0\r\n" : honest(c); };
  const Read got = read_from(without, 10000);
  const size_t failed = got.count(ReadState::kFailed);
  CHECK(failed > 0);
  CHECK(got.count(ReadState::kFound) == 50);
  CHECK(got.failure.code == Code::kDataLoss);
  CHECK(got.failure.message.find("generation g: its marker hr{") == 0);
}

TEST_CASE("redis_reader: many readers, while the topology changes and answers are lost") {
  std::atomic<int> calls{0};
  FakeRedis node([&](const Command& command) { return ++calls % 50 == 0 ? "" : honest(command); });
  FakeRedis other(honest);
  RedisOptions options;
  options.most_reads = 3;
  const RedisReader reader(generation(), node.topology(), options);
  std::atomic<size_t> found{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const Read got = read(reader, 5000);
        found += got.count(ReadState::kFound);
        wrong += !got.is_right();
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    reader.set_topology(i % 2 == 0 ? other.topology() : node.topology());
    CHECK(reader.statistics().find("\"reads\"") != std::string::npos);
    std::this_thread::sleep_for(milliseconds(2));
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(found > 4 * 100 * 50 * 9 / 10);
}

TEST_CASE("redis_reader: a read that would wait for too long fails at once") {
  FakeRedis node([](const Command& command) {
    std::this_thread::sleep_for(milliseconds(200));
    return honest(command);
  });
  RedisOptions options;
  options.most_reads = 1;
  const RedisReader reader(generation(), node.topology(), options);
  CHECK(read(reader, 5000).count(ReadState::kFound) == 50);  // shows how long a read takes
  CHECK(reader.typical_read() >= milliseconds(200));
  std::thread first([&] { CHECK(read(reader, 5000).count(ReadState::kFound) == 50); });
  std::this_thread::sleep_for(milliseconds(50));
  const Read second = read(reader, 250);
  CHECK(second.failure.code == Code::kResourceExhausted);
  CHECK(second.failure.message.find("would not end in time") != std::string::npos);
  CHECK(second.count(ReadState::kFailed) == 100);
  CHECK(second.spent.count() < 50);
  CHECK(reader.statistics().find("\"refused\":1") != std::string::npos);
  // One with more time waits.
  CHECK(read(reader, 5000).count(ReadState::kFound) == 50);
  first.join();
}

TEST_CASE("redis_reader: more reads than are allowed wait until their deadline") {
  FakeRedis node([](const Command& command) {
    std::this_thread::sleep_for(milliseconds(400));
    return honest(command);
  });
  RedisOptions options;
  options.most_reads = 1;
  const RedisReader reader(generation(), node.topology(), options);
  std::thread first([&] { CHECK(read(reader, 5000).count(ReadState::kFound) == 50); });
  std::this_thread::sleep_for(milliseconds(50));
  const Read second = read(reader, 50);
  CHECK(second.failure.code == Code::kResourceExhausted);
  CHECK(second.count(ReadState::kFailed) == 100);
  CHECK(second.spent.count() < 300);
  CHECK(read(reader, 5000).count(ReadState::kFound) == 50);
  first.join();
}

}  // namespace hotrow
