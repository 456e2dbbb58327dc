// Takes memory from the system before it is used, so that no step waits for it.
//
// A page that nobody has written yet costs its first writer a fault: a fraction of a millisecond for a
// large page, and several on a virtual machine whose host has none ready. A pool of blocks meets them
// in bursts, as each layer comes to its next large page with the same block.
#pragma once

#include <cstddef>
#include <memory>

#include "memory.h"

namespace headway {

// Of memory in equal parts, each of which is used from its beginning on.
class Residence {
 public:
  // A thread of low priority takes what lies close ahead, until all of it is taken or nobody holds
  // this any more. Throws std::system_error if it can't be started.
  Residence(std::shared_ptr<const Pages> pages, size_t part_bytes, int num_parts);
  ~Residence();
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  // Use has come to `offset` in each part. Does not wait.
  void reach(size_t offset);
  // Take all of it now.
  void complete();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too: it is not waited for
};

}  // namespace headway
