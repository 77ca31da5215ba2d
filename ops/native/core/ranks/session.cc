#include "core/ranks/session.h"

namespace hotrow {

RankSession& session_of(Table& first) {
  std::call_once(first.session_made, [&] { first.session = std::make_unique<RankSession>(); });
  return static_cast<RankSession&>(*first.session);
}

}  // namespace hotrow
