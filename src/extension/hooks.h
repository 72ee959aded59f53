// The hooks, one file each. module.cc installs them in the postmaster; each keeps the previous hook and always chains.
#pragma once

namespace sluice::extension {

void install_authentication_hook();  // authentication.cc: session permits
void install_executor_hooks();       // executor.cc: execution permits of planned statements
void install_utility_hook();         // utility.cc: execution permits of utility statements
void install_fastpath_hook();        // fastpath.cc: execution permits of function calls by protocol message
void watch_transactions();           // transaction.cc: permits go back at the transaction's end

}  // namespace sluice::extension
