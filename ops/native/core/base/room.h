// Memory for the next elements of a vector, so that adding them cannot fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hotrow {

// After this, `more` elements can be added without an allocation. Grows by doubling, as push_back.
template <typename T>
void make_room(std::vector<T>& elements, size_t more = 1) {
  constexpr size_t kLeast = 8;
  const size_t wanted = elements.size() + more;
  if (wanted > elements.capacity()) {
    elements.reserve(std::max({wanted, 2 * elements.capacity(), kLeast}));
  }
}

}  // namespace hotrow
