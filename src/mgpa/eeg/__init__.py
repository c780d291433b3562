"""From raw EEG to embedding tables: data sets, measurement views, preprocessing, encoders, a simulator."""
