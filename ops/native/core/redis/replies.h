// Replies of Redis as they arrive, parsed by hiredis without an allocation for each value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

struct redisReader;

namespace hotrow {

// Receives the parts of replies. Called from C: it must not throw.
class RedisReplySink {
 public:
  // The parts of a reply. index: the part's place in an array, or -1 for the whole reply.
  virtual void on_string(int index, const char* data, size_t bytes) noexcept = 0;
  virtual void on_nil(int index) noexcept = 0;
  virtual void on_integer(int index, long long value) noexcept = 0;
  virtual void on_status(int index) noexcept = 0;
  virtual void on_error(int index, std::string_view message) noexcept = 0;
  virtual void on_array(size_t elements) noexcept = 0;
  // A part that no reply to our commands has.
  virtual void on_surprise() noexcept = 0;

 protected:
  ~RedisReplySink() = default;
};

// A parser of one connection.
class RedisReplies {
 public:
  RedisReplies();
  ~RedisReplies();
  RedisReplies(const RedisReplies&) = delete;
  RedisReplies& operator=(const RedisReplies&) = delete;

  enum class Next { kReply, kNeedsMore, kBroken };
  // Takes bytes. False: they are no replies, or memory is short; see error().
  bool feed(const char* data, size_t bytes);
  // Parses up to the end of a reply and calls `sink` for its parts, also for parts of an incomplete
  // reply.
  Next next(RedisReplySink* sink);
  const char* error() const;
  // Whether all bytes were parsed.
  bool is_empty() const;

 private:
  redisReader* reader_;
};

}  // namespace hotrow
