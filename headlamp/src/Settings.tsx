import Button from '@mui/material/Button';
import TextField from '@mui/material/TextField';
import { useState } from 'react';
import { ask, ConsoleError, readAddress } from './connection';
import { keepAddress, useKept } from './kept';
import { Command, Problem } from './parts';

/** Where to paste the address of the console. */
export function Settings() {
  const [address, setAddress] = useState(useKept()?.address ?? '');
  const [said, setSaid] = useState('');
  const [error, setError] = useState<ConsoleError>();

  async function save() {
    setError(undefined);
    setSaid('');
    try {
      if (address.trim() === '') {
        keepAddress('');
        setSaid('No console is connected.');
        return;
      }
      const connection = readAddress(address);
      keepAddress(address.trim());
      setSaid('Saved. The console is asked…');
      const { about } = await ask(connection, '/cluster?per=1', new AbortController().signal);
      setSaid(`Saved. The console reads the cluster ${about.server}.`);
    } catch (found) {
      setSaid('');
      setError(found as ConsoleError);
    }
  }

  return (
    <>
      <Command />
      <TextField
        id="vicinity-address"
        label="Address that the console has printed"
        type="password"
        autoComplete="off"
        fullWidth
        value={address}
        onChange={event => setAddress(event.target.value)}
      />
      <p>
        It has a token. Headlamp keeps it in this browser, where its other plugins can read it, and
        it is of no use after the console ends.
      </p>
      <Button variant="contained" onClick={save}>
        Save and try
      </Button>
      {said && <p role="status">{said}</p>}
      {error && <Problem error={error} />}
    </>
  );
}
