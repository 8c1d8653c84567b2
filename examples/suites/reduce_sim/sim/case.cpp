#include "case.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "kernels.h"
#include "machine.h"

namespace sim {
namespace {

// Turns the sign of the first element of the result, if that has 32 bits.
void spoil(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  unsigned char bytes[4];
  if (!file || std::fread(bytes, 1, 4, file) != 4) fail("there is nothing to spoil in " + path);
  bytes[3] ^= 0x80;
  std::rewind(file);
  std::fwrite(bytes, 1, 4, file);
  std::fclose(file);
}

}  // namespace

int run_case(int argc, char** argv, const Case& what) {
  if (argc < 2 || argc > 3) fail("usage: PROGRAM FOLDER [none|hang|crash|wrong|slow]");
  const std::string fault = argc > 2 ? argv[2] : "none";
  Machine machine(argv[1]);
  if (fault == "hang") {
    for (;;) pause();
  }
  if (fault == "crash") std::abort();
  // As a simulator that takes its time, but leaves the processor to others.
  if (fault == "slow") usleep(500'000);
  run_kernel(machine, what);
  if (fault == "wrong") spoil(machine.folder() + "/output.bin");
  std::printf("cycles=%" PRIu64 "\n", machine.cycles());
  return 0;
}

}  // namespace sim
