//! An open connection on the thread that opened it, so that whoever asks never waits longer than it
//! wants to: neither the driver nor TCP bounds a statement whose server has gone silent.

use std::sync::mpsc;

use super::Client;

type Call = Box<dyn FnOnce(&mut Client) + Send>;

/// The connection is closed when this is dropped, after the call that is under way; one that is stuck
/// in a call is left to the process's end.
pub(crate) struct Link {
    calls: mpsc::Sender<Call>,
}

impl Link {
    /// Hands a link to `client` out, then does what is sent there.
    pub(super) fn serve(mut client: Client, hand_out: impl FnOnce(Self)) {
        let (calls, queue) = mpsc::channel::<Call>();
        hand_out(Self { calls });
        while let Ok(call) = queue.recv() {
            call(&mut client);
        }
        client.close();
    }

    /// Has `call` done after those that were sent before; does not wait for it.
    pub(crate) fn send(&self, call: impl FnOnce(&mut Client) + Send + 'static) {
        // The thread ends only with the link; if it did not, there would be no answer.
        let _ = self.calls.send(Box::new(call));
    }
}
