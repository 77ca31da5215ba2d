#include "core/redis/topology.h"

#include <doctest/doctest.h>

#include "core/base/status.h"
#include "tests/error_code.h"

namespace hotrow {

TEST_CASE("redis_topology: addresses") {
  CHECK(parse_redis_address("redis.example:6379").host == "redis.example");
  CHECK(parse_redis_address("redis.example:6379").port == 6379);
  CHECK(parse_redis_address("unix:/run/a:1").path == "/run/a:1");
  // As topologies have IPv6, and as MOVED has it.
  for (const char* text : {"[::1]:7000", "::1:7000"}) {
    const RedisAddress address = parse_redis_address(text);
    CHECK(address.host == "::1");
    CHECK(address.port == 7000);
    CHECK(address.text == "[::1]:7000");
  }
  const std::string long_path = "unix:/" + std::string(120, 'a');
  for (const char* text : {"", ":", "a", "a:", ":1", "a:x", "a:1x", "a:-1", "a:0", "a:65536",
                           "a:99999999999", "?:", "unix:", long_path.c_str()}) {
    CAPTURE(text);
    CHECK(error_code([&] { parse_redis_address(text); }) == Code::kInvalidArgument);
  }
}

TEST_CASE("redis_topology: a cluster has ranges of slots, one server has none") {
  const RedisTopology one =
      parse_redis_topology(R"({"cluster": false, "nodes": [{"address": "a:1"}]})");
  CHECK(!one.cluster);
  CHECK(one.nodes.at(0).slots.empty());
  CHECK(!one.tls);
  const RedisTopology secret = parse_redis_topology(
      R"({"cluster": false, "nodes": [{"address": "a:1"}],
          "tls": {"ca": "/ca", "cert": "", "key": ""}})");
  CHECK(secret.tls == RedisTlsFiles{"/ca", "", ""});
  const RedisTopology two = parse_redis_topology(
      R"({"cluster": true, "nodes": [{"address": "a:1", "slots": [[0, 5], [7, 7]]},
                                     {"address": "b:2", "slots": []}]})");
  CHECK(two.cluster);
  CHECK(two.nodes.at(0).slots.at(1) == std::pair<uint32_t, uint32_t>(7, 7));
  CHECK(two.nodes.at(1).address.text == "b:2");
  for (const char* text :
       {"", "[]", "{}", R"({"cluster": true, "nodes": []})",
        R"({"cluster": 1, "nodes": [{"address": "a:1"}]})",
        R"({"cluster": true, "nodes": [{"address": "a:1"}]})",
        R"({"cluster": true, "nodes": [{"address": "a:1", "slots": [[2, 1]]}]})",
        R"({"cluster": true, "nodes": [{"address": "a:1", "slots": [[0, 16384]]}]})",
        R"({"cluster": true, "nodes": [{"address": "a:1", "slots": [[0]]}]})",
        R"({"cluster": false, "nodes": [{"address": "a:1"}, {"address": "b:1"}]})",
        R"({"cluster": false, "nodes": [{"address": "a:1"}], "tls": true})",
        R"({"cluster": false, "nodes": [{"address": "a:1"}], "tls": {"ca": "/ca"}})",
        R"({"cluster": false, "nodes": [{"address": "a:1"}],
            "tls": {"ca": "", "cert": "/c", "key": ""}})"}) {
    CAPTURE(text);
    CHECK(error_code([&] { parse_redis_topology(text); }) == Code::kInvalidArgument);
  }
}

}  // namespace hotrow
