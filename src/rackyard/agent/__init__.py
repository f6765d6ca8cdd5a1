"""The node agent: reads one host again and again, and says what is wrong with it as conditions, labels and metrics."""
