// An event on a completion queue: every tag is an Event.
#pragma once

namespace hotrow_server {

class Event {
 public:
  virtual ~Event() = default;
  // ok: as the queue reports. May delete the event.
  virtual void happen(bool ok) = 0;
};

}  // namespace hotrow_server
