// The Redis nodes, and how they are reached.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hotrow {

struct RedisAddress {
  std::string text;  // host:port or unix:/path
  std::string host;  // without the brackets of IPv6
  int port = 0;
  std::string path;  // of a Unix socket; else empty
};

// Fails with InvalidArgument.
RedisAddress parse_redis_address(const std::string& text);

struct RedisTopology {
  struct Node {
    RedisAddress address;
    std::vector<std::pair<uint32_t, uint32_t>> slots;  // first, last
  };
  bool cluster = false;  // else one node has everything
  std::vector<Node> nodes;
  // A Unix socket of a relay that connects to any node (redis/node.h); empty: nodes are reached
  // directly.
  RedisAddress relay;
};

// json: {"cluster": bool, "nodes": [{"address": "...", "slots": [[first, last], ...]}, ...]}; slots
// may be absent outside of a cluster; and "relay": "unix:/path", for nodes that speak TLS. Fails
// with InvalidArgument.
RedisTopology parse_redis_topology(const std::string& json);

}  // namespace hotrow
