// What happens on a completion queue: every tag is one of these.
#pragma once

namespace hotrow_server {

class Event {
 public:
  virtual ~Event() = default;
  // ok: as the queue says. May delete the event.
  virtual void happen(bool ok) = 0;
};

}  // namespace hotrow_server
