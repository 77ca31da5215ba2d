#include "core/redis/replies.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

namespace hotrow {
namespace {

// Records the parts of replies as text.
struct Recorder final : RedisReplySink {
  std::string seen;
  void note(char mark, int index, std::string_view text) {
    seen += mark + std::to_string(index) + "=" + std::string(text) + ";";
  }
  void on_string(int index, const char* data, size_t bytes) noexcept override {
    note('$', index, {data, bytes});
  }
  void on_nil(int index) noexcept override { note('_', index, ""); }
  void on_integer(int index, long long value) noexcept override {
    note(':', index, std::to_string(value));
  }
  void on_status(int index) noexcept override { note('+', index, ""); }
  void on_error(int index, std::string_view message) noexcept override {
    note('-', index, message);
  }
  void on_array(size_t elements) noexcept override { note('*', -1, std::to_string(elements)); }
  void on_surprise() noexcept override { note('!', -1, ""); }
};

// Feeds pieces of `size` bytes; returns the replies, followed by "broken" after an error.
std::string parse(const std::string& bytes, size_t size) {
  RedisReplies replies;
  std::string seen;
  Recorder recorder;
  for (size_t at = 0; at < bytes.size(); at += size) {
    if (!replies.feed(bytes.data() + at, std::min(size, bytes.size() - at))) return seen + "broken";
    for (;;) {
      const RedisReplies::Next next = replies.next(&recorder);
      if (next == RedisReplies::Next::kBroken) return seen + "broken";
      if (next == RedisReplies::Next::kNeedsMore) break;
      seen += recorder.seen + "\n";
      recorder.seen.clear();
    }
  }
  CHECK(replies.is_empty() == recorder.seen.empty());
  return seen;
}

}  // namespace

TEST_CASE("redis_replies: however they are cut, replies are the same") {
  const std::string bytes =
      "*3\r\n$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n"
      ":42\r\n+OK\r\n-MOVED 1 a:1\r\n*0\r\n*-1\r\n$-1\r\n$2\r\nxy\r\n";
  const std::string replies =
      "*-1=3;$0=a\r\n;_1=;$2=;\n:-1=42;\n+-1=;\n--1=MOVED 1 a:1;\n*-1=0;\n_-1=;\n_-1=;\n$-1=xy;\n";
  for (size_t size = 1; size <= bytes.size(); ++size) CHECK(parse(bytes, size) == replies);
}

TEST_CASE("redis_replies: nested arrays are surprises, garbage breaks") {
  CHECK(parse("*1\r\n*1\r\n:1\r\n", 100) == "*-1=1;!-1=;!-1=;\n");
  CHECK(parse("hello\r\n", 100) == "broken");
  CHECK(parse("+OK\r\n\r\n", 100) == "+-1=;\nbroken");
  CHECK(parse("$5x\r\nhello\r\n", 100).find("broken") != std::string::npos);
  CHECK(parse("*99999999999\r\n", 100).find("broken") != std::string::npos);
}

TEST_CASE("redis_replies: random bytes do no harm") {
  std::mt19937 random(3);
  const std::string alphabet = "*$:+-0123456789\r\n\r\n\r\n\r\nab";
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (size_t j = random() % 60; j > 0; --j) bytes += alphabet[random() % alphabet.size()];
    RedisReplies replies;
    Recorder recorder;
    const size_t cut = bytes.empty() ? 0 : random() % bytes.size();
    for (const std::string& part : {bytes.substr(0, cut), bytes.substr(cut)}) {
      if (!replies.feed(part.data(), part.size())) break;
      while (replies.next(&recorder) == RedisReplies::Next::kReply) {
      }
    }
  }
}

}  // namespace hotrow
