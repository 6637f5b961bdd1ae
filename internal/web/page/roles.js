// Who may do what: the page leaves out what the server would refuse. The server decides.
const order = ['viewer', 'tenant', 'operator', 'admin'];

function atLeast(self, role) { return order.indexOf(self.role) >= order.indexOf(role) && !self.read_only; }

// maySubmit tells who may hand in tasks, and act on those that are its own.
export function maySubmit(self) { return atLeast(self, 'tenant'); }

// mayRun tells who may act on pools.
export function mayRun(self) { return atLeast(self, 'operator'); }

// words say who one is.
export function words(self) {
  const role = self.tenant ? (self.role === 'tenant' ? '' : self.role + ' of ') + 'tenant ' + self.tenant : self.role;
  return role + (self.read_only ? ', reads only' : '');
}
