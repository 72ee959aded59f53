#include <exception>
#include <iostream>

#include "cli/command_line.h"

int main(int argc, char** argv) {
  try {
    return sluice::cli::run_command({argv + 1, argv + argc}, std::cout, std::cerr);
  } catch (const std::exception& error) {
    std::cerr << "sluice: " << error.what() << '\n';
    return sluice::cli::kExitRefused;
  }
}
