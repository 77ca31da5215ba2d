// The Redis nodes, and how they are reached.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hotrow {

struct RedisAddress {
  std::string text;  // host:port or unix:/path
  std::string host;  // without the brackets of IPv6
  int port = 0;
  std::string path;  // of a Unix socket; else empty
};

// PEM files of a client.
struct RedisTlsFiles {
  std::string ca;         // authorities beside the system's; empty: none
  std::string cert, key;  // the client's own; empty: none
  bool operator==(const RedisTlsFiles& other) const {
    return std::tie(ca, cert, key) == std::tie(other.ca, other.cert, other.key);
  }
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
  std::optional<RedisTlsFiles> tls;  // null: nodes speak plain text
};

// json: {"cluster": bool, "nodes": [{"address": "...", "slots": [[first, last], ...]}, ...]}; slots
// may be absent outside of a cluster; and "tls": {"ca": path, "cert": path, "key": path}, each
// perhaps "", for nodes that speak TLS. Fails with InvalidArgument.
RedisTopology parse_redis_topology(const std::string& json);

}  // namespace hotrow
