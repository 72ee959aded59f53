// The help texts of the command, one page a subcommand.
#pragma once

namespace sluice::cli {

extern const char kSluiceHelp[];
extern const char kPolicyHelp[];
extern const char kLintHelp[];
extern const char kPublishHelp[];
extern const char kProxyHelp[];

}  // namespace sluice::cli
