#include "core/base/digest.h"

#include <doctest/doctest.h>

#include <array>
#include <vector>

namespace hotrow {
namespace {

using Digest = std::array<uint64_t, 2>;
using Row = std::pair<int64_t, std::vector<uint8_t>>;

Digest digest_of(const std::vector<Row>& rows) {
  Digest digest = {0, 0};
  for (const Row& row : rows) {
    add_row_digest(row.first, row.second.data(), row.second.size(), digest.data());
  }
  return digest;
}

}  // namespace

TEST_CASE("digest: does not depend on the order of rows, and on everything else") {
  const Row a = {1, {1, 2, 3, 4}}, b = {2, {1, 2, 3, 4}}, c = {-1, {0, 0, 0, 0}};
  const Digest digest = digest_of({a, b, c});
  CHECK(digest == digest_of({c, a, b}));
  CHECK(digest != digest_of({a, b}));
  CHECK(digest != digest_of({a, b, c, c}));
  CHECK(digest != digest_of({a, b, {-1, {0, 0, 0, 1}}}));
  CHECK(digest != digest_of({a, b, {-2, {0, 0, 0, 0}}}));
  CHECK(digest != digest_of({{2, {1, 2, 3, 4}}, b, c}));
  CHECK(digest_of({}) == Digest{0, 0});
  // Swapped lines.
  CHECK(digest_of({{1, {5}}, {2, {6}}}) != digest_of({{1, {6}}, {2, {5}}}));
}

}  // namespace hotrow
