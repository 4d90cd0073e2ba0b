/** Which past steps the model looks at. */

import { Figure, Heat } from "../charts";
import { attentionOf, model, stepLabels } from "../model";
import { Label, Lacking, Search } from "../parts";
import { choose, node } from "../state";
import { figure } from "../text";

export function Attention() {
  const { mean_attention } = model.facts;
  const chosen = node.value;
  const own = chosen === null ? null : attentionOf(chosen);
  if (!mean_attention && !model.attention) {
    return <Lacking about={/attention/i}>This run has no temporal attention: its method does not weigh past windows.</Lacking>;
  }
  return (
    <>
      <header class="view-head">
        <h2>Temporal attention</h2>
        <p class="quiet">
          How much each window draws on those before it. Each row adds up to 1. Even weights mean that the past counts as
          a whole; a bright or dark diagonal means that the most recent window counts most.
        </p>
      </header>
      <div class="charts">
        {mean_attention ? (
          <Matrix title="Mean of all nodes" values={mean_attention} test="chart-attention" />
        ) : (
          <Lacking about={/attention/i}>The mean over all nodes is not on this page.</Lacking>
        )}
        <div>
          {chosen !== null && own && <Matrix title="The chosen node" values={own} test="chart-attention-node" node={chosen} />}
          {chosen !== null && !own && (
            <Lacking about={/attention/i}>
              The attention of <Label node={chosen} length={60} /> is not on this page.
            </Lacking>
          )}
          {chosen === null && <p class="lacking">Choose a node to see its own attention beside the mean.</p>}
          <Search onChoose={choose} label="Choose a node" />
        </div>
      </div>
    </>
  );
}

function Matrix({ title, values, test, node }: { title: string; values: (number | null)[][]; test: string; node?: number }) {
  const labels = stepLabels();
  const max = values.flat().reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  return (
    <Figure
      title={title}
      note={node === undefined ? undefined : model.facts.labels[node].slice(0, 80)}
      test={test}
      table={{
        head: ["Window", ...labels],
        rows: values.map((row, i) => [labels[i], ...row]),
        format: figure,
      }}
    >
      <Heat
        label={`${title}: attention of each window to those before`}
        rows={labels}
        columns={labels}
        values={values}
        max={max}
        format={(value) => value.toFixed(2)}
        rowName="Window"
        columnName="attends to"
      />
    </Figure>
  );
}
