#include "core/redis/replies.h"

#include <hiredis/read.h>

#include <new>

namespace hotrow {
namespace {

// A buffer that grew beyond this is freed when it is empty.
constexpr size_t kKeptBytes = size_t{1} << 20;

// hiredis takes null for "out of memory"; no code reads this value.
void* const kParsed = reinterpret_cast<void*>(1);

RedisReplySink* sink_of(const redisReadTask* task) {
  return static_cast<RedisReplySink*>(task->privdata);
}

int index_of(const redisReadTask* task) { return task->parent == nullptr ? -1 : task->idx; }

// Our commands are answered by arrays of values at most.
bool is_nested(const redisReadTask* task) {
  return task->parent != nullptr && task->parent->parent != nullptr;
}

void* take_string(const redisReadTask* task, char* data, size_t bytes) {
  RedisReplySink* sink = sink_of(task);
  if (is_nested(task)) {
    sink->on_surprise();
  } else if (task->type == REDIS_REPLY_ERROR) {
    sink->on_error(index_of(task), {data, bytes});
  } else if (task->type == REDIS_REPLY_STATUS) {
    sink->on_status(index_of(task));
  } else {
    sink->on_string(index_of(task), data, bytes);
  }
  return kParsed;
}

void* take_array(const redisReadTask* task, int elements) {
  if (task->parent != nullptr) {
    sink_of(task)->on_surprise();
  } else {
    sink_of(task)->on_array(static_cast<size_t>(elements));
  }
  return kParsed;
}

void* take_integer(const redisReadTask* task, long long value) {
  if (is_nested(task)) {
    sink_of(task)->on_surprise();
  } else {
    sink_of(task)->on_integer(index_of(task), value);
  }
  return kParsed;
}

void* take_nil(const redisReadTask* task) {
  if (is_nested(task)) {
    sink_of(task)->on_surprise();
  } else {
    sink_of(task)->on_nil(index_of(task));
  }
  return kParsed;
}

redisReplyObjectFunctions functions = {take_string, take_array, take_integer, take_nil, nullptr};

}  // namespace

RedisReplies::RedisReplies() : reader_(redisReaderCreateWithFunctions(&functions)) {
  if (reader_ == nullptr) throw std::bad_alloc();
  reader_->maxbuf = kKeptBytes;
}

RedisReplies::~RedisReplies() { redisReaderFree(reader_); }

bool RedisReplies::feed(const char* data, size_t bytes) {
  return redisReaderFeed(reader_, data, bytes) == REDIS_OK;
}

RedisReplies::Next RedisReplies::next(RedisReplySink* sink) {
  reader_->privdata = sink;
  // A task that waits for its bytes still has the sink of an earlier call.
  for (int i = 0; i <= reader_->ridx; ++i) reader_->rstack[i].privdata = sink;
  void* reply = nullptr;
  if (redisReaderGetReply(reader_, &reply) != REDIS_OK) return Next::kBroken;
  return reply == nullptr ? Next::kNeedsMore : Next::kReply;
}

const char* RedisReplies::error() const { return reader_->errstr; }

bool RedisReplies::is_empty() const {
  // hiredis begins a reply before it checks whether there is one.
  const bool between = reader_->ridx == -1 || (reader_->ridx == 0 && reader_->rstack[0].type == -1);
  return between && reader_->pos == reader_->len;
}

}  // namespace hotrow
