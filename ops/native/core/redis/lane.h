// The commands and replies between one read and one node.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/redis/node.h"
#include "core/redis/replies.h"
#include "core/store/page_requests.h"
#include "core/store/store_layout.h"

namespace hotrow {

// A command that a read sends to a node.
struct RedisCommand {
  enum class Kind : uint8_t {
    kGreeting,  // AUTH, SELECT
    kAsking,    // ASKING, before a command that follows an ASK
    kPages,     // MGET of pages: [first, first + count) of the read's order
    kMarker,    // EXISTS of the shard's marker
    kMark,      // HGET of the shard's watermark, before its first pages over a connection
  };
  Kind kind = Kind::kPages;
  bool asking = false;
  uint8_t redirects = 0;  // followed so far
  uint8_t pauses = 0;     // made so far
  uint32_t shard = 0;     // in a cluster, and of markers
  uint32_t first = 0, count = 0;
};

// How commands are written, and where their pages go: the same for all lanes of a read.
struct RedisReadJob {
  const StoreNames* names;
  PageRequests* pages;
  std::vector<uint32_t> order;  // pages, as commands have them
  RowVersion fence = 0;         // rows of shards with a lower watermark fail; 0: none
  uint64_t round = 0;           // of the fence
};

class RedisLane final : public RedisReplySink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  RedisLane(RedisReadJob* job, std::shared_ptr<RedisNode> node)
      : job_(job), node_(std::move(node)) {}

  RedisNode* node() const { return node_.get(); }
  const std::shared_ptr<RedisNode>& shared_node() const { return node_; }
  RedisConnection* connection() const { return connection_.get(); }
  bool is_open() const { return connection_ != nullptr; }
  // Changes whenever a connection is opened or closed. The address of a connection is no
  // identity: the next one may have the same.
  uint32_t serial() const { return serial_; }
  // greetings: how many replies to AUTH and SELECT are awaited.
  void open(std::unique_ptr<RedisConnection> connection, size_t greetings, Time now);
  // Ends the connection. Returns the commands that were not answered, in their order.
  std::vector<RedisCommand> close();
  // Returns the connection to the node's idle ones, unless replies are awaited or bytes are left.
  void give_back();

  void send(const RedisCommand& command, Time now);
  size_t awaited() const { return sent_.size() - answered_; }
  Time replied() const { return replied_; }
  void set_replied(Time now) { replied_ = now; }

  // Parses the next reply. Sets *command to the answered command, and *error if Redis refused it.
  RedisReplies::Next next(RedisCommand* command, std::string* error);
  // Of a marker: it exists.
  bool has_marker() const { return integer_ != 0; }
  // Of a watermark; 0: the shard has no marker.
  RowVersion mark() const { return mark_; }
  // Whether pages of a shard that this connection answers fail: the watermark that came before them
  // is lower than the fence, or could not be read.
  bool is_behind(uint32_t shard) const { return !behind_.empty() && behind_[shard]; }
  void set_behind(uint32_t shard, bool is_behind) { behind_[shard] = is_behind; }
  // Why a page could not be taken; "" if all could.
  const std::string& damage() const { return damage_; }

  void on_string(int index, const char* data, size_t bytes) noexcept override;
  void on_nil(int index) noexcept override;
  void on_integer(int index, long long value) noexcept override;
  void on_status(int index) noexcept override;
  void on_error(int index, std::string_view message) noexcept override;
  void on_array(size_t elements) noexcept override;
  void on_surprise() noexcept override { surprised_ = true; }

  // The read's state of this lane.
  bool is_probe = false;
  bool has_reconnected = false;
  bool is_dead = false;  // in this read

 private:
  const RedisCommand* asked(int index, RedisCommand::Kind kind) noexcept;
  void write(const RedisCommand& command);
  void ask_marks(const RedisCommand& pages);

  RedisReadJob* job_;
  std::shared_ptr<RedisNode> node_;
  std::unique_ptr<RedisConnection> connection_;
  uint32_t serial_ = 0;
  std::vector<RedisCommand> sent_;
  size_t answered_ = 0;
  // Of each shard; empty without a fence.
  std::vector<uint8_t> marks_asked_;  // its watermark is awaited
  std::vector<uint8_t> behind_;
  Time replied_;
  // State of the reply that is being parsed.
  bool surprised_ = false;
  bool has_array_ = false;
  long long integer_ = 0;
  RowVersion mark_ = 0;
  std::string error_;
  std::string damage_;
};

}  // namespace hotrow
