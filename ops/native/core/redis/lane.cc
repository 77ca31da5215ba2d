#include "core/redis/lane.h"

#include <cstring>
#include <utility>

#include "core/store/redis_length.h"

namespace hotrow {
namespace {

using Kind = RedisCommand::Kind;

}  // namespace

void RedisLane::open(std::unique_ptr<RedisConnection> connection, size_t greetings, Time now) {
  connection_ = std::move(connection);
  ++serial_;
  sent_.clear();
  answered_ = 0;
  if (job_->fence != 0) {
    const size_t shards = job_->names->shards();
    marks_asked_.assign(shards, 0);
    behind_.assign(shards, 0);
    RedisMarks* const marks = connection_->marks();
    if (marks->round != job_->round || marks->of_shard.empty()) {
      marks->round = job_->round;
      marks->of_shard.assign(shards, 0);
    }
  }
  RedisCommand greeting;
  greeting.kind = Kind::kGreeting;
  sent_.assign(greetings, greeting);
  replied_ = now;
}

std::vector<RedisCommand> RedisLane::close() {
  std::vector<RedisCommand> left;
  for (size_t i = answered_; i < sent_.size(); ++i) {
    if (sent_[i].kind == Kind::kPages || sent_[i].kind == Kind::kMarker) left.push_back(sent_[i]);
  }
  sent_.clear();
  answered_ = 0;
  connection_.reset();
  ++serial_;
  return left;
}

void RedisLane::give_back() {
  if (connection_ == nullptr) return;
  if (awaited() == 0 && !connection_->has_output() && connection_->replies()->is_empty()) {
    node_->give_back(std::move(connection_));
  }
  connection_.reset();
}

void RedisLane::send(const RedisCommand& command, Time now) {
  if (awaited() == 0) replied_ = now;
  if (command.kind == Kind::kPages && job_->fence != 0) ask_marks(command);
  if (command.asking) {
    RedisCommand asking;
    asking.kind = Kind::kAsking;
    append_command({"ASKING"}, connection_->output());
    sent_.push_back(asking);
  }
  write(command);
  sent_.push_back(command);
  node_->commands.fetch_add(1, std::memory_order_relaxed);
}

// Asks for the watermarks of the shards of some pages, unless they were read over this connection
// and are high enough. Redis answers in order, so that they arrive before the pages.
void RedisLane::ask_marks(const RedisCommand& pages) {
  RedisCommand mark;
  mark.kind = Kind::kMark;
  mark.asking = pages.asking;
  for (uint32_t i = pages.first; i < pages.first + pages.count; ++i) {
    mark.shard = job_->pages->shard(job_->order[i]);
    if (connection_->marks()->of_shard[mark.shard] >= job_->fence || marks_asked_[mark.shard]) {
      continue;
    }
    marks_asked_[mark.shard] = 1;
    send(mark, replied_);
  }
}

void RedisLane::write(const RedisCommand& command) {
  std::string* out = connection_->output();
  if (command.kind == Kind::kMarker) {
    append_command({"EXISTS", job_->names->marker(command.shard)}, out);
    return;
  }
  if (command.kind == Kind::kMark) {
    append_command({"HGET", job_->names->marker(command.shard), "wm"}, out);
    return;
  }
  char piece[StoreNames::kLongestPage + 32];
  char* at = put_length('*', 1 + size_t{command.count}, piece);
  std::memcpy(at, "$4\r\nMGET\r\n", 10);
  out->append(piece, static_cast<size_t>(at + 10 - piece));
  for (uint32_t i = command.first; i < command.first + command.count; ++i) {
    const size_t page = job_->order[i];
    char name[StoreNames::kLongestPage];
    const size_t length = job_->names->page(job_->pages->shard(page), job_->pages->table(page),
                                            job_->pages->number(page), name);
    at = put_length('$', length, piece);
    std::memcpy(at, name, length);
    at += length;
    *at++ = '\r';
    *at++ = '\n';
    out->append(piece, static_cast<size_t>(at - piece));
  }
}

RedisReplies::Next RedisLane::next(RedisCommand* command, std::string* error) {
  const RedisReplies::Next next = connection_->replies()->next(this);
  if (next == RedisReplies::Next::kNeedsMore && !surprised_) return next;
  if (next != RedisReplies::Next::kReply || surprised_) {
    *error = surprised_ ? "it sent what no command of a reader is answered with"
                        : connection_->replies()->error();
    return RedisReplies::Next::kBroken;
  }
  *command = sent_[answered_++];
  if (answered_ == sent_.size()) {
    sent_.clear();
    answered_ = 0;
  }
  if (command->kind == Kind::kMark) marks_asked_[command->shard] = 0;
  *error = std::move(error_);
  error_.clear();
  has_array_ = false;
  return next;
}

// The command that is being answered, if its answer may contain this part.
const RedisCommand* RedisLane::asked(int index, Kind kind) noexcept {
  const bool fits = answered_ < sent_.size() && sent_[answered_].kind == kind &&
                    (kind == Kind::kPages ? index >= 0 && has_array_ : index < 0);
  if (fits) return &sent_[answered_];
  surprised_ = true;
  return nullptr;
}

void RedisLane::on_string(int index, const char* data, size_t bytes) noexcept {
  if (answered_ < sent_.size() && sent_[answered_].kind == Kind::kMark) {
    mark_ = 0;
    if (asked(index, Kind::kMark) == nullptr || bytes != sizeof(mark_)) return;
    std::memcpy(&mark_, data, sizeof(mark_));
    return;
  }
  const RedisCommand* command = asked(index, Kind::kPages);
  if (command == nullptr) return;
  const size_t page = job_->order[command->first + static_cast<uint32_t>(index)];
  if (is_behind(job_->pages->shard(page))) {
    job_->pages->settle(page, ReadState::kFailed);
    return;
  }
  if (job_->pages->fill(page, data, bytes) || !damage_.empty()) return;
  char name[StoreNames::kLongestPage];
  const size_t length = job_->names->page(job_->pages->shard(page), job_->pages->table(page),
                                          job_->pages->number(page), name);
  damage_ = "page " + std::string(name, length) + " has " + std::to_string(bytes) +
            " bytes, no whole number of records";
}

void RedisLane::on_nil(int index) noexcept {
  if (answered_ < sent_.size() && sent_[answered_].kind == Kind::kMark) {
    mark_ = 0;
    asked(index, Kind::kMark);
    return;
  }
  const RedisCommand* command = asked(index, Kind::kPages);
  if (command == nullptr) return;
  const size_t page = job_->order[command->first + static_cast<uint32_t>(index)];
  if (job_->pages->state(page) == PageRequests::PageState::kDone) return;
  if (is_behind(job_->pages->shard(page))) {
    job_->pages->settle(page, ReadState::kFailed);
  } else {
    job_->pages->miss(page);
  }
}

void RedisLane::on_integer(int index, long long value) noexcept {
  if (asked(index, Kind::kMarker) != nullptr) integer_ = value;
}

void RedisLane::on_status(int index) noexcept {
  // +OK of AUTH, SELECT and ASKING.
  if (index >= 0 || answered_ >= sent_.size() || sent_[answered_].kind == Kind::kPages ||
      sent_[answered_].kind == Kind::kMarker || sent_[answered_].kind == Kind::kMark) {
    surprised_ = true;
  }
}

void RedisLane::on_error(int index, std::string_view message) noexcept {
  if (index >= 0 || answered_ >= sent_.size()) {
    surprised_ = true;
  } else {
    error_ = message;
  }
}

void RedisLane::on_array(size_t elements) noexcept {
  if (answered_ < sent_.size() && sent_[answered_].kind == Kind::kPages && !has_array_ &&
      elements == sent_[answered_].count) {
    has_array_ = true;
  } else {
    surprised_ = true;
  }
}

}  // namespace hotrow
