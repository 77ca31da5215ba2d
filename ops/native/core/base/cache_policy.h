// The eviction policy: which rows of a cache are evicted for new ones.
#pragma once

namespace hotrow {

enum class CachePolicy : int { kLfu = 0, kLru = 1 };

}  // namespace hotrow
