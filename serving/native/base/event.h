// Events, and the sources that threads take them from.
#pragma once

#include <chrono>

namespace hotrow_server {

class Event {
 public:
  virtual ~Event() = default;
  // ok: as the source reports. May delete the event.
  virtual void happen(bool ok) = 0;
};

class EventSource {
 public:
  struct Taken {
    Event* event;  // null: the source worked for itself, and there may be more
    bool ok;
  };

  virtual ~EventSource() = default;
  // Takes an event; waits for one for at most `patience`, which may be 0. False: there was none.
  // Safe from several threads.
  virtual bool take(std::chrono::milliseconds patience, Taken* taken) = 0;
};

}  // namespace hotrow_server
