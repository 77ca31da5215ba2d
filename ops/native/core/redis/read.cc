#include "core/redis/read.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hotrow {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = RedisCommand::Kind;
using PageState = PageRequests::PageState;
using std::chrono::milliseconds;

// Redis serves no other client during a command, so pieces are not larger.
constexpr uint32_t kMostPages = 512;
// Commands are sent in pieces while they are written, so that nodes start before the rest is
// written.
constexpr size_t kFlushedBytes = 16 << 10;
constexpr uint8_t kMostRedirects = 5;
constexpr milliseconds kShortestPause{2}, kLongestPause{50};

bool begins_with(const std::string& text, const char* word) { return text.rfind(word, 0) == 0; }

// Whether the error passes after a while, so that the command is sent to the same node again.
bool is_passing(const std::string& error) {
  for (const char* word : {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "BUSY "}) {
    if (begins_with(error, word)) return true;
  }
  return false;
}

Code code_of(const std::string& error) {
  for (const char* word : {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "ERR AUTH"}) {
    if (begins_with(error, word)) return Code::kPermissionDenied;
  }
  return Code::kUnavailable;
}

}  // namespace

RedisRead::RedisRead(const RedisReading& shared, PageRequests* pages, Deadline deadline)
    : shared_(shared),
      pages_(pages),
      deadline_(deadline),
      now_(Clock::now()),
      map_(shared.routes->map()),
      job_{shared.names, pages, {}, shared.fence->version, shared.fence->round},
      open_pages_(shared.names->shards()),
      missing_pages_(shared.names->shards()) {}

ReadFailure RedisRead::run() {
  job();
  for (size_t i = 0; i < lanes_.size(); ++i) flush(lanes_[i].get(), true);
  const auto is_waiting = [&] {
    return !later_.empty() || std::any_of(lanes_.begin(), lanes_.end(),
                                          [](const auto& lane) { return lane->awaited() != 0; });
  };
  while (is_waiting()) {
    wait();
    if (now_ >= deadline_) break;
  }
  if (is_waiting()) expire();
  for (const auto& lane : lanes_) lane->give_back();
  return std::move(failure_);
}

RedisRead::~RedisRead() {
  // End every probe: a node whose probe never ends would never be used again.
  for (const auto& lane : lanes_) {
    if (lane->is_probe) lane->node()->breaker()->give_up();
  }
}

// Orders the pages and requests all of them.
void RedisRead::job() {
  const auto pages = static_cast<uint32_t>(pages_->size());
  for (uint32_t p = 0; p < pages; ++p) ++open_pages_[pages_->shard(p)];
  job_.order.resize(pages);
  add(&shared_.statistics->pages, pages);
  RedisCommand command;
  if (!map_->cluster) {
    for (uint32_t p = 0; p < pages; ++p) job_.order[p] = p;
    for (command.first = 0; command.first < pages; command.first += command.count) {
      command.count = std::min(kMostPages, pages - command.first);
      ask(command, map_->of_shard[0]);
    }
    return;
  }
  // In a cluster, the keys of a command have one slot.
  std::vector<uint32_t> ends(open_pages_.size());
  uint32_t end = 0;
  for (size_t s = 0; s < ends.size(); ++s) {
    ends[s] = end;
    end += open_pages_[s];
  }
  for (uint32_t p = 0; p < pages; ++p) job_.order[ends[pages_->shard(p)]++] = p;
  command.first = 0;
  for (command.shard = 0; command.shard < ends.size(); ++command.shard) {
    for (; command.first < ends[command.shard]; command.first += command.count) {
      command.count = std::min(kMostPages, ends[command.shard] - command.first);
      ask(command, map_->of_shard[command.shard]);
    }
  }
}

void RedisRead::ask(const RedisCommand& command, const std::shared_ptr<RedisNode>& node) {
  if (node == nullptr) {
    const std::string slot = std::to_string(shared_.names->slot(command.shard));
    give_up(command, Code::kUnavailable, "no node of the Redis Cluster has slot " + slot);
    return;
  }
  RedisLane* lane = lane_of(node);
  if (lane->is_dead) {
    const Error failure = node->breaker()->last_failure();
    give_up(command, failure.code(), "Redis node " + node->address().text + ": " + failure.what());
    return;
  }
  lane->send(command, now_);
  flush(lane, false);
}

void RedisRead::ask_owner(const RedisCommand& command) {
  ask(command, shared_.routes->map()->of_shard[command.shard]);
}

RedisLane* RedisRead::lane_of(const std::shared_ptr<RedisNode>& node) {
  for (const auto& lane : lanes_) {
    if (lane->node() == node.get()) return lane.get();
  }
  lanes_.push_back(std::make_unique<RedisLane>(&job_, node));
  RedisLane* lane = lanes_.back().get();
  const CircuitBreaker::Pass pass = node->breaker()->admit(now_);
  if (pass == CircuitBreaker::Pass::kRefused) {
    lane->is_dead = true;
    return lane;
  }
  lane->is_probe = pass == CircuitBreaker::Pass::kProbe;
  if (auto idle = node->take_idle(); idle != nullptr) {
    lane->open(std::move(idle), 0, now_);
  } else {
    open(lane);
  }
  return lane;
}

// Connects; on failure the lane is dead.
void RedisRead::open(RedisLane* lane) {
  try {
    size_t greetings = 0;
    const Deadline limit = std::min(deadline_, now_ + shared_.options->connect_timeout);
    auto connection = lane->node()->connect(limit, &greetings);
    now_ = Clock::now();
    lane->open(std::move(connection), greetings, now_);
  } catch (const Error& error) {
    now_ = Clock::now();
    abandon(lane, error.code(), error.what(), false);
  }
}

void RedisRead::flush(RedisLane* lane, bool always) {
  if (!lane->is_open() || lane->connection()->is_connecting()) return;
  if (!always && lane->connection()->output()->size() < kFlushedBytes) return;
  const std::string why = lane->connection()->flush();
  // Without `always`, replies may be read just now: the next flush finds the error again.
  if (!why.empty() && always) broken(lane, why);
}

// A connection failed to send. What the node sent before it closed says more than the socket's
// error does: it may have refused the client's certificate, or have too many clients.
void RedisRead::broken(RedisLane* lane, const std::string& why) {
  const uint32_t serial = lane->serial();
  if (!lane->connection()->is_connecting()) receive(lane);
  if (lane->serial() == serial) disconnected(lane, why);
}

void RedisRead::receive(RedisLane* lane) {
  const uint32_t serial = lane->serial();
  for (bool full = true; full && lane->serial() == serial;) {
    size_t bytes;
    const std::string why = lane->connection()->receive(&bytes, &full);
    if (bytes != 0) {
      lane->set_replied(now_);
      add(&lane->node()->bytes_in, bytes);
    }
    RedisCommand command;
    std::string error;
    while (lane->serial() == serial) {
      const RedisReplies::Next next = lane->next(&command, &error);
      if (next == RedisReplies::Next::kNeedsMore) break;
      if (next == RedisReplies::Next::kBroken) {
        if (why.empty()) abandon(lane, Code::kUnavailable, error, true);
        break;
      }
      answered(lane, command, error);
      if (lane->awaited() == 0) add(&shared_.statistics->trips);
    }
    if (lane->serial() != serial) break;
    if (!why.empty()) disconnected(lane, why);
    if (lane->awaited() == 0) break;
  }
}

void RedisRead::answered(RedisLane* lane, const RedisCommand& command, const std::string& error) {
  if (!error.empty()) {
    refused(lane, command, error);
    return;
  }
  lane->node()->breaker()->succeed();
  lane->is_probe = false;
  if (command.kind == Kind::kMarker) {
    if (lane->has_marker()) {
      settle(command.shard, ReadState::kUnknown);
      return;
    }
    settle(command.shard, ReadState::kFailed);
    note(Code::kDataLoss, "generation " + shared_.generation + ": its marker " +
                              shared_.names->marker(command.shard) + " is missing on Redis node " +
                              lane->node()->address().text +
                              ", so the store has lost rows; export the model again");
  }
  if (command.kind == Kind::kMark) marked(lane, command.shard);
  if (command.kind != Kind::kPages) return;
  if (!lane->damage().empty()) note(Code::kDataLoss, lane->damage());
  for (uint32_t i = command.first; i < command.first + command.count; ++i) {
    const size_t page = job_.order[i];
    const uint32_t shard = pages_->shard(page);
    if (lane->is_behind(shard)) {
      note(Code::kUnavailable, "Redis node " + lane->node()->address().text +
                                   ": the watermark of its rows could not be read");
    }
    if (pages_->state(page) == PageState::kMissing) {
      ++missing_pages_[shard];
      missing_.push_back(static_cast<uint32_t>(page));
    }
    end_page(shard);
  }
}

// A watermark arrived, before the pages of its shard.
void RedisRead::marked(RedisLane* lane, uint32_t shard) {
  const RowVersion mark = lane->mark();
  lane->set_behind(shard, mark < job_.fence);
  if (mark >= job_.fence) {
    lane->connection()->marks()->of_shard[shard] = mark;
    return;
  }
  const std::string place =
      shared_.names->marker(shard) + " on Redis node " + lane->node()->address().text;
  if (mark == 0) {
    note(Code::kDataLoss, "generation " + shared_.generation + ": its marker " + place +
                              " is missing, so the store has lost rows; export the model again");
  } else {
    note(Code::kUnavailable, "generation " + shared_.generation +
                                 ": the store went back in time: " + place + " is at version " +
                                 std::to_string(mark) + ", the rows that are shown at " +
                                 std::to_string(job_.fence) + "; export the model again");
  }
}

// Redis answered a command with an error.
void RedisRead::refused(RedisLane* lane, RedisCommand command, const std::string& error) {
  const std::string& place = lane->node()->address().text;
  if (command.kind == Kind::kGreeting) {
    abandon(lane, code_of(error), error, false);
    return;
  }
  if (command.kind == Kind::kAsking) return;  // the next reply answers it
  if (command.kind == Kind::kMark) {
    // The pages behind it are redirected, too. Those of a slot that moves may be answered here.
    if (begins_with(error, "ASK ")) return;
    // A node that has just been started, or promoted, may answer pages after it refused this.
    lane->set_behind(command.shard, true);
    if (!is_passing(error) && !begins_with(error, "MOVED ")) {
      note(code_of(error), "Redis node " + place + ": " + error);
    }
    return;
  }
  if (is_passing(error)) {
    pause(lane, command, error);
    return;
  }
  lane->node()->breaker()->succeed();
  lane->is_probe = false;
  if (map_->cluster && (begins_with(error, "MOVED ") || begins_with(error, "ASK "))) {
    redirect(lane, command, error);
    return;
  }
  if (begins_with(error, "MOVED ") || begins_with(error, "CROSSSLOT")) {
    give_up(
        command, Code::kFailedPrecondition,
        "Redis node " + place + " is of a Redis Cluster; the store's URL must say so: " + error);
    return;
  }
  give_up(command, code_of(error), "Redis node " + place + ": " + error);
}

// Sends the command to the same node again, after a pause.
void RedisRead::pause(RedisLane* lane, RedisCommand command, const std::string& error) {
  command.asking = false;
  if (begins_with(error, "TRYAGAIN") && command.count > 1) {
    // The slot is migrating, so its pages are on two nodes: commands of a single page always work.
    RedisCommand one = command;
    one.count = 1;
    for (uint32_t i = 0; i < command.count; ++i, ++one.first) ask_owner(one);
    return;
  }
  const auto length =
      std::min(kShortestPause * (1 << std::min<int>(command.pauses, 6)), kLongestPause);
  if (command.pauses < 255) ++command.pauses;
  add(&shared_.statistics->retried);
  later_.push_back({now_ + length, command, lane->shared_node(), error});
}

// MOVED <slot> <host:port>, or ASK.
void RedisRead::redirect(RedisLane* lane, RedisCommand command, const std::string& error) {
  const std::string& place = lane->node()->address().text;
  command.asking = error[0] == 'A';
  if (++command.redirects > kMostRedirects) {
    give_up(command, Code::kUnavailable,
            "Redis node " + place + ": too many redirections, the last one " + error);
    return;
  }
  std::string to = error.substr(error.rfind(' ') + 1);
  // An empty host means the host of the node that replied.
  if (!to.empty() && to[0] == ':') to = lane->node()->address().host + to;
  try {
    const std::shared_ptr<RedisNode> node = shared_.routes->node(parse_redis_address(to));
    if (command.asking) {
      add(&shared_.statistics->asked);
    } else {
      add(&shared_.statistics->moved);
      shared_.routes->move(command.shard, node);
      // A node that follows another one goes back with it, and keeps its connections.
      shared_.fence->round.fetch_add(1, std::memory_order_relaxed);
    }
    ask(command, node);
  } catch (const Error& unknown) {
    give_up(command, Code::kUnavailable, "Redis node " + place + ": " + error);
  }
}

// The connection is lost: sends unanswered commands once more, over a new connection.
void RedisRead::disconnected(RedisLane* lane, const std::string& why) {
  lane->node()->drop_idle();
  if (lane->has_reconnected || lane->is_probe || now_ >= deadline_) {
    abandon(lane, Code::kUnavailable, why, false);
    return;
  }
  lane->has_reconnected = true;
  add(&shared_.statistics->reconnects);
  const std::vector<RedisCommand> left = lane->close();
  open(lane);
  for (const RedisCommand& command : left) ask(command, lane->shared_node());
}

// Stops using the node in this read.
void RedisRead::abandon(RedisLane* lane, Code code, const std::string& why, bool certain) {
  lane->is_dead = true;
  lane->is_probe = false;
  lane->node()->failures.fetch_add(1, std::memory_order_relaxed);
  lane->node()->breaker()->fail(now_, code, why, certain);
  if (certain) lane->node()->drop_idle();
  for (const RedisCommand& command : lane->close()) {
    give_up(command, code, "Redis node " + lane->node()->address().text + ": " + why);
  }
}

// Marks the command's keys as failed.
void RedisRead::give_up(const RedisCommand& command, Code code, const std::string& why) {
  note(code, why);
  if (command.kind == Kind::kMarker) {
    settle(command.shard, ReadState::kFailed);
    return;
  }
  for (uint32_t i = command.first; i < command.first + command.count; ++i) {
    const size_t page = job_.order[i];
    // The connection may be lost after a part of the answer.
    if (pages_->state(page) == PageState::kMissing) pages_->settle(page, ReadState::kFailed);
    end_page(pages_->shard(page));
  }
}

// When no page of a shard is awaited any more and some are missing, requests its marker: it shows
// whether the store lost rows.
void RedisRead::end_page(uint32_t shard) {
  if (--open_pages_[shard] != 0 || missing_pages_[shard] == 0) return;
  RedisCommand command;
  command.kind = Kind::kMarker;
  command.shard = shard;
  add(&shared_.statistics->markers);
  ask_owner(command);
}

void RedisRead::settle(uint32_t shard, ReadState state) {
  for (const uint32_t page : missing_) {
    if (pages_->shard(page) == shard && pages_->state(page) == PageState::kMissing) {
      pages_->settle(page, state);
    }
  }
}

void RedisRead::note(Code code, const std::string& why) {
  if (failure_.code != Code::kOk) return;
  failure_.code = code;
  failure_.message = why;
}

// The time until which a node may be silent.
Deadline RedisRead::patience(const RedisLane& lane) const {
  const bool is_new = lane.is_probe || lane.connection()->is_connecting();
  return lane.replied() + (is_new ? shared_.options->connect_timeout : shared_.options->silence);
}

// Waits for the next events and handles them.
void RedisRead::wait() {
  std::vector<pollfd> polled;
  std::vector<RedisLane*> lanes;
  Deadline until = deadline_;
  for (const Later& later : later_) until = std::min(until, later.at);
  for (const auto& lane : lanes_) {
    if (lane->awaited() == 0) continue;
    const RedisConnection* connection = lane->connection();
    polled.push_back({connection->fd(), connection->events(), 0});
    lanes.push_back(lane.get());
    until = std::min(until, patience(*lane));
  }
  const auto left = std::max(until - now_, Deadline::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout = {seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
  const int ready = ppoll(polled.data(), polled.size(), &timeout, nullptr);
  now_ = Clock::now();
  for (size_t i = 0; ready > 0 && i < polled.size(); ++i) {
    RedisLane* lane = lanes[i];
    if (polled[i].revents == 0 || !lane->is_open()) continue;
    if ((polled[i].revents & POLLOUT) != 0 || lane->connection()->is_connecting()) {
      const std::string why = lane->connection()->flush();
      if (!why.empty()) {
        broken(lane, why);
        continue;
      }
      if (lane->connection()->is_connecting()) continue;
    }
    if ((polled[i].revents & ~POLLOUT) != 0) receive(lane);
  }
  std::vector<Later> due;
  for (size_t i = 0; i < later_.size();) {
    if (later_[i].at > now_) {
      ++i;
    } else {
      due.push_back(std::move(later_[i]));
      later_.erase(later_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  for (const Later& later : due) ask_owner(later.command);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    RedisLane* lane = lanes_[i].get();
    if (lane->awaited() == 0) continue;
    flush(lane, true);
    if (lane->awaited() != 0 && patience(*lane) <= now_) {
      abandon(lane, Code::kUnavailable, "it does not answer", true);
    }
  }
}

// Fails what is left at the deadline.
void RedisRead::expire() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i]->awaited() == 0) continue;
    abandon(lanes_[i].get(), Code::kUnavailable, "it did not answer before the deadline", false);
  }
  for (const Later& later : std::exchange(later_, {})) {
    later.node->breaker()->fail(now_, Code::kUnavailable, later.why, false);
    give_up(later.command, Code::kUnavailable,
            "Redis node " + later.node->address().text + ": " + later.why);
  }
}

}  // namespace hotrow
